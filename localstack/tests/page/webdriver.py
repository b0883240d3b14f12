"""Just enough of WebDriver to drive a headless Chromium with the standard library; what is looked at is the caller's."""

import base64
import json
import re
import subprocess
import time
import urllib.error
import urllib.request

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
WAIT = 60


class Driver:
    """A chromedriver on a port of its own, gone when the `with` block ends."""

    def __enter__(self):
        self.process = subprocess.Popen(
            ["chromedriver", "--port=0", "--allowed-ips=127.0.0.1"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        for line in self.process.stdout:
            if found := re.search(r"started successfully on port (\d+)", line):
                self.url = f"http://127.0.0.1:{found[1]}"
                return self
        raise RuntimeError("chromedriver did not start")

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()

    def call(self, method, path, body=None):
        data = None if method in ("GET", "DELETE") else json.dumps(body or {}).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            value = json.load(error)["value"]
            raise RuntimeError(f"{method} {path}: {value['error']}: {value['message']}") from None

    def browser(self, width, height, phone=False):
        """A browser with one window of this size."""
        options = {"args": ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--window-size={width},{height}"]}
        if phone:
            options["mobileEmulation"] = {"deviceMetrics": {"width": width, "height": height, "pixelRatio": 2.0, "touch": True}}
        wanted = {"browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        session = self.call("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        return Browser(self, f"/session/{session['sessionId']}")


class Browser:
    """One browser and its windows."""

    def __init__(self, driver, path):
        self.driver, self.path = driver, path

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.driver.call("DELETE", self.path)

    def do(self, what, body=None):
        return self.driver.call("POST", f"{self.path}/{what}", body)

    def open(self, url):
        self.do("url", {"url": url})

    def window(self):
        return self.driver.call("GET", f"{self.path}/window")

    def new_window(self):
        handle = self.do("window/new", {"type": "window"})["handle"]
        self.switch(handle)
        return handle

    def switch(self, handle):
        self.do("window", {"handle": handle})

    def run(self, script, *args):
        """What a function body returns in the page."""
        return self.do("execute/sync", {"script": script, "args": list(args)})

    def find(self, css):
        return Element(self, self.do("element", {"using": "css selector", "value": css})[ELEMENT])

    def text(self, css):
        return self.run("return document.querySelector(arguments[0])?.textContent ?? null", css)

    def until(self, what, seen, patience=WAIT):
        """Polls until `seen()` gives something true, which it returns."""
        end = time.monotonic() + patience
        while not (value := seen()):
            assert time.monotonic() < end, f"not within {patience:.0f} s: {what}"
            time.sleep(0.05)
        return value

    def press(self, *keys):
        strokes = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        self.do("actions", {"actions": [{"type": "key", "id": "keys", "actions": strokes}]})

    def cdp(self, command, **params):
        return self.do("goog/cdp/execute", {"cmd": command, "params": params})

    def media(self, **features):
        """Pretends that the person prefers something, as `prefers_color_scheme="dark"`."""
        named = [{"name": name.replace("_", "-"), "value": value} for name, value in features.items()]
        self.cdp("Emulation.setEmulatedMedia", features=named)

    def screenshot(self, path, whole=False):
        shot = self.cdp("Page.captureScreenshot", format="png", captureBeyondViewport=whole, **self._clip(whole))
        path.write_bytes(base64.b64decode(shot["data"]))

    def _clip(self, whole):
        if not whole:
            return {}
        size = self.cdp("Page.getLayoutMetrics")["cssContentSize"]
        return {"clip": {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}}

    def complaints(self):
        """What the console said that is an error, since it was last asked."""
        lines = self.do("se/log", {"type": "browser"})
        return [line["message"] for line in lines if line["level"] == "SEVERE"]


class Element:
    """One element."""

    def __init__(self, browser, handle):
        self.browser, self.handle = browser, handle

    def click(self):
        self.browser.do(f"element/{self.handle}/click")

    def write(self, text):
        """Replaces what a field holds."""
        self.browser.do(f"element/{self.handle}/clear")
        self.browser.do(f"element/{self.handle}/value", {"text": text})
