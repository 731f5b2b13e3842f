#!/usr/bin/env python3
"""Tests of `fsdplan report`: what it writes, and what it says about a bad file. usage: report_command_test.py FSDPLAN"""
import gzip, json, pathlib, subprocess, sys, tempfile, unittest

import sample_result

FSDPLAN = sys.argv.pop(1)


class ReportCommand(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.doc = sample_result.reordered(sample_result.toy(3))

    def write(self, text, name="r.json"):
        (self.folder / name).write_text(text)

    def report(self, *arguments):
        return subprocess.run([FSDPLAN, "report", *arguments], cwd=self.folder, capture_output=True, text=True, timeout=60)

    def expect_refusal(self, message, *arguments):
        before = sorted(self.folder.iterdir())
        run = self.report(*arguments)
        self.assertEqual((run.returncode, run.stdout), (2, ""), run.stderr)
        self.assertEqual(len(run.stderr.splitlines()), 1, run.stderr)
        self.assertIn(message, run.stderr)
        self.assertEqual(sorted(self.folder.iterdir()), before)

    def test_page_holds_the_result(self):
        self.write(json.dumps(self.doc))
        self.assertEqual(self.report("r.json", "-o", "r.html").returncode, 0)
        page = (self.folder / "r.html").read_text()
        data = page.split('id="report-data">')[1].split("</script>")[0]
        self.assertEqual(json.loads(data), self.doc)

    def test_standard_output_is_the_same_page(self):
        self.write(json.dumps(self.doc))
        self.report("r.json", "-o", "r.html")
        self.assertEqual(self.report("r.json").stdout, (self.folder / "r.html").read_text())

    def test_gzip_is_unpacked(self):
        (self.folder / "r.json.gz").write_bytes(gzip.compress(json.dumps(self.doc).encode()))
        self.assertEqual(self.report("r.json.gz", "-o", "r.html").returncode, 0)

    def test_missing_file(self):
        self.expect_refusal("absent.json: cannot be read", "absent.json", "-o", "r.html")

    def test_cut_off_file(self):
        self.write(json.dumps(self.doc)[:-20])
        self.expect_refusal("r.json", "r.json", "-o", "r.html")

    def test_another_format(self):
        self.write('{"format": "fsdplan.module-tree", "version": 1}')
        self.expect_refusal('r.json#/format: expected "fsdplan.result"', "r.json", "-o", "r.html")

    def test_another_version(self):
        self.write(json.dumps({**self.doc, "version": 2}))
        self.expect_refusal("r.json#/version: expected version 1, found 2", "r.json", "-o", "r.html")

    def test_other_endings_are_no_page(self):
        self.write(json.dumps(self.doc))
        self.expect_refusal("-o r.pdf: expected a name that ends in .html", "r.json", "-o", "r.pdf")

    def test_a_folder_that_is_not_there(self):
        self.write(json.dumps(self.doc))
        run = self.report("r.json", "-o", "absent/r.html")
        self.assertEqual((run.returncode, len(run.stderr.splitlines())), (3, 1), run.stderr)


if __name__ == "__main__":
    unittest.main()
