#!/usr/bin/env python3
"""Tests of schema_check.py, and of reports/result.schema.json on documents with one thing wrong."""
import copy, json, pathlib, sys, unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "browser")]
import sample_result
from schema_check import faults

SCHEMA = json.loads((HERE.parent.parent / "reports" / "result.schema.json").read_text())


def check(value, schema):
    return list(faults(value, schema, schema))


class Keywords(unittest.TestCase):
    def test_true_is_no_integer(self):
        self.assertEqual(check(True, {"type": "integer"}), ["/: expected integer, found true"])
        self.assertEqual(check(1, {"type": "integer"}), [])

    def test_true_is_not_one(self):
        self.assertTrue(check(True, {"const": 1}))
        self.assertTrue(check(1, {"enum": [True]}))

    def test_one_of_several_types_is_enough(self):
        self.assertEqual(check(None, {"type": ["integer", "null"], "minimum": 0}), [])
        self.assertTrue(check("0", {"type": ["integer", "null"]}))

    def test_faults_carry_their_pointer(self):
        schema = {"properties": {"a": {"items": {"$ref": "#/$defs/n"}}}, "$defs": {"n": {"minimum": 0}}}
        self.assertEqual(check({"a": [1, -1]}, schema), ["/a/1: -1 is below 0"])

    def test_additional_properties_leaves_the_named_ones_alone(self):
        schema = {"properties": {"a": {"type": "string"}}, "additionalProperties": {"type": "integer"}}
        self.assertEqual(check({"a": "x", "b": 1}, schema), [])
        self.assertEqual(len(check({"a": "x", "b": "y"}, schema)), 1)

    def test_then_counts_where_if_holds(self):
        schema = {"allOf": [{"if": {"properties": {"a": {"const": 1}}}, "then": {"required": ["b"]}}]}
        self.assertEqual(check({"a": 1}, schema), ['/: the key "b" is missing'])
        self.assertEqual(check({"a": 2}, schema), [])

    def test_an_unknown_keyword_is_not_passed_over(self):
        with self.assertRaises(ValueError):
            check({}, {"patternProperties": {}})


class ResultSchema(unittest.TestCase):
    def setUp(self):
        self.doc = copy.deepcopy(sample_result.toy(3))

    def expect_fault(self, part):
        found = check(self.doc, SCHEMA)
        self.assertEqual(len(found), 1, found)
        self.assertIn(part, found[0])

    def test_the_sample_is_valid(self):
        self.assertEqual(check(self.doc, SCHEMA), [])

    def test_more_keys_are_welcome(self):
        self.doc["plans"][0]["settings"] = {}
        self.assertEqual(check(self.doc, SCHEMA), [])

    def test_bytes_are_integers(self):
        self.doc["plans"][0]["memory"][0]["bytes"] = 0.5
        self.expect_fault("/plans/0/memory/0/bytes: expected integer")

    def test_a_plan_says_whether_it_fits(self):
        del self.doc["plans"][1]["fits"]
        self.expect_fault('/plans/1: the key "fits" is missing')

    def test_fits_is_true_false_or_null(self):
        self.doc["verdict"]["fits"] = "maybe"
        self.expect_fault("/verdict/fits: expected boolean or null")

    def test_another_format_is_refused(self):
        self.doc["format"] = "fsdplan.module-tree"
        self.expect_fault("/format")


if __name__ == "__main__":
    unittest.main()
