#!/usr/bin/env python3
"""Opens one HTML report in headless Chromium and checks what is there. Python standard library only.

  browser_check.py report.html --expect '#peak=68.7' --eval 'document.title.length > 3' --png report.png

Checked always: the page says that it has drawn everything (<html data-ready="1">), nothing is written to the
console as an error or warning, no exception escapes, nothing but the file itself is requested, and no element
is wider than the page.

Exit status: 0 all holds, 1 something does not, 2 the command line is wrong, 77 there is no Chromium.
"""
import argparse, base64, json, os, pathlib, select, shutil, signal, subprocess, sys, tempfile, time

FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage",
         "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions",
         "--no-default-browser-check", "--hide-scrollbars", "--force-device-scale-factor=1", "--remote-debugging-pipe"]


class Browser:
    """Chromium behind the DevTools protocol on two pipes: no port, no driver."""

    def __init__(self, binary, deadline):
        self.deadline, self.calls, self.unread, self.events = deadline, 0, b"", []
        self.profile = tempfile.mkdtemp(prefix="fsdplan-browser-")
        commands, self.to_browser = os.pipe()
        self.from_browser, answers = os.pipe()
        # Chromium reads commands from descriptor 3 and answers on 4; the shell renumbers.
        self.process = subprocess.Popen(
            ["sh", "-c", f'exec "$@" 3<&{commands} 4>&{answers}', "sh", binary, *FLAGS, f"--user-data-dir={self.profile}", "about:blank"],
            pass_fds=(commands, answers), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True)
        os.close(commands)
        os.close(answers)

    def message(self):
        while b"\0" not in self.unread:
            left = self.deadline - time.monotonic()
            if left <= 0 or not select.select([self.from_browser], [], [], left)[0]:
                raise TimeoutError("the browser did not answer in time")
            chunk = os.read(self.from_browser, 1 << 16)
            if not chunk:
                raise EOFError("the browser ended")
            self.unread += chunk
        raw, _, self.unread = self.unread.partition(b"\0")
        return json.loads(raw)

    def call(self, method, session=None, **params):
        self.calls += 1
        request = {"id": self.calls, "method": method, "params": params}
        if session:
            request["sessionId"] = session
        raw = json.dumps(request).encode() + b"\0"
        while raw:
            raw = raw[os.write(self.to_browser, raw):]
        while True:
            message = self.message()
            if message.get("id") == self.calls:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error'].get('message')}")
                return message["result"]
            if "method" in message:
                self.events.append(message)

    def close(self):
        try:
            self.call("Browser.close")
            self.process.wait(5)
        except Exception:
            pass  # it may be gone already; the group is ended below
        try:
            os.killpg(self.process.pid, signal.SIGKILL)  # a session of its own: our processes only
        except ProcessLookupError:
            pass
        self.process.wait()
        shutil.rmtree(self.profile, ignore_errors=True)


class Page:
    """One tab with a document in it."""

    def __init__(self, browser, width, dark):
        self.browser, self.width = browser, width
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")
        self.resize(900)
        self.call("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
            {"name": "prefers-reduced-motion", "value": "reduce"}])

    def call(self, method, **params):
        return self.browser.call(method, session=self.session, **params)

    def js(self, expression):
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"].get("exception", {}).get("description", "exception"))
        return answer["result"].get("value")

    def resize(self, height):
        self.call("Emulation.setDeviceMetricsOverride", width=self.width, height=height, deviceScaleFactor=1, mobile=False)

    def open(self, url):
        self.call("Page.navigate", url=url)
        while self.js("document.readyState === 'complete' && document.documentElement.dataset.ready") != "1":
            if any(e["method"] == "Runtime.exceptionThrown" for e in self.browser.events):
                raise RuntimeError("the page did not finish")
            time.sleep(0.02)

    def settle(self):
        self.js("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def screenshot(self, path):
        self.resize(min(12000, int(self.js("Math.ceil(document.documentElement.scrollHeight)"))))
        self.js("new Promise(done => setTimeout(done, 300))")
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def print(self, path):
        path.write_bytes(base64.b64decode(self.call("Page.printToPDF", printBackground=True, preferCSSPageSize=True)["data"]))


def complaints(events, url):
    """What the browser reported that a report must not do."""
    for event in events:
        method, p = event["method"], event.get("params", {})
        if method == "Runtime.exceptionThrown":
            details = p["exceptionDetails"]
            yield "uncaught: " + details.get("exception", {}).get("description", details.get("text", "?"))
        elif method == "Runtime.consoleAPICalled" and p["type"] in ("error", "warning", "assert"):
            yield f"console {p['type']}: " + " ".join(str(a.get("value", a.get("description"))) for a in p["args"])
        elif method == "Log.entryAdded" and p["entry"]["level"] in ("error", "warning"):
            yield f"log {p['entry']['level']}: {p['entry']['text']}"
        elif method == "Network.requestWillBeSent":
            asked = p["request"]["url"]
            if asked.split("#")[0] != url and not asked.startswith(("data:", "blob:", "about:")):
                yield "request to " + asked


def act(page, actions):
    """Clicks and keys in the order given; yields what could not be done."""
    for kind, argument in actions:
        selector, _, key = argument.rpartition("=") if kind == "key" else (argument, "", "")
        do = "e.dispatchEvent(new MouseEvent('click', {bubbles: true}))" if kind == "click" else \
            f"(e.focus(), e.dispatchEvent(new KeyboardEvent('keydown', {{key: {json.dumps(key)}, bubbles: true, cancelable: true}})))"
        if not page.js(f"(e => e && ({do}, true))(document.querySelector({json.dumps(selector)}))"):
            yield f"nothing at {selector} to {kind}"


def check(page, options):
    yield from act(page, options.actions)
    page.settle()
    for wanted in options.expect:
        selector, _, words = wanted.partition("=")
        found = page.js(f"document.querySelector({json.dumps(selector)})?.textContent ?? null")
        if found is None or words not in found:
            yield f"{selector}: expected text {words!r}, found {found if found is None else found[:300]!r}"
    for expression in options.eval:
        if not page.js(expression):
            yield "not true: " + expression
    for expression in options.show:
        print(expression, "=", json.dumps(page.js(expression), ensure_ascii=False))
    over = page.js("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    if over > 0:
        yield f"the page is {over} px wider than the window of {options.width} px"


class Then(argparse.Action):
    """Clicks and keys share one list, so that their order is kept."""

    def __call__(self, parser, namespace, value, option=None):
        namespace.actions.append((option.lstrip("-"), value))


def command_line():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.set_defaults(actions=[])
    parser.add_argument("html", type=pathlib.Path)
    parser.add_argument("--dark", action="store_true", help="the reader prefers dark colours")
    parser.add_argument("--width", type=int, default=1280, help="of the window, in pixels")
    parser.add_argument("--hash", default="", help="fragment to open, as in plan=3")
    parser.add_argument("--click", action=Then, metavar="SELECTOR", help="click; may be repeated and mixed with --key")
    parser.add_argument("--key", action=Then, metavar="SELECTOR=KEY", help="focus and press a key")
    parser.add_argument("--expect", action="append", default=[], metavar="SELECTOR=TEXT", help="the element's text contains TEXT")
    parser.add_argument("--eval", action="append", default=[], metavar="JS", help="the expression is true")
    parser.add_argument("--show", action="append", default=[], metavar="JS", help="print the expression's value")
    parser.add_argument("--png", type=pathlib.Path, help="write a picture of the whole page")
    parser.add_argument("--pdf", type=pathlib.Path, help="write what printing gives")
    parser.add_argument("--timeout", type=float, default=60, help="seconds")
    options = parser.parse_args()
    if not options.html.is_file():
        parser.error(f"no such file: {options.html}")
    return options


def main():
    options = command_line()
    names = ("chromium", "chromium-browser", "google-chrome")
    binary = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, names)), None)
    if not binary:
        print("skipped: no Chromium here")
        return 77
    url, failures = options.html.resolve().as_uri(), []
    browser = Browser(binary, time.monotonic() + options.timeout)
    try:
        page = Page(browser, options.width, options.dark)
        page.open(url + ("#" + options.hash if options.hash else ""))
        failures += check(page, options)
        if options.png:
            page.screenshot(options.png)
        if options.pdf:
            page.print(options.pdf)
        page.js("1")  # events that are on their way arrive before the answer
    except (TimeoutError, EOFError, RuntimeError) as error:
        failures.append(f"{type(error).__name__}: {error}")
    finally:
        browser.close()
    failures += complaints(browser.events, url)
    for failure in failures:
        print("failed:", failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
