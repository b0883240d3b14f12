// Keeps up with a source on the server: by events where the browser has a connection to spare, by asking where not.
//
// A browser opens six connections to one host, for all its tabs together, and each event source holds one for good.
// So sources take places that all tabs share (Web Locks), four in all; a tab without a place asks once a second.

const EVERY = 1000;
const pause = (ms) => new Promise((done) => setTimeout(done, ms));

/** One of `places`, held until the function it gives is called; nothing if all are taken. */
async function place(places) {
  if (!navigator.locks) return () => {};
  for (const name of places) {
    const leave = await new Promise((got) => {
      navigator.locks
        .request(name, { ifAvailable: true }, (lock) => {
          if (!lock) return got(null);
          return new Promise((leave) => got(leave));
        })
        .catch(() => got(null));
    });
    if (leave) return leave;
  }
  return null;
}

/** Reads events of these `names` until the source breaks, is silent for longer than `silence`, or `signal` aborts. */
function listen(url, names, silence, signal, heard) {
  return new Promise((ended) => {
    const source = new EventSource(url);
    let timer;
    const end = () => {
      clearTimeout(timer);
      source.close();
      signal.removeEventListener("abort", end);
      ended();
    };
    const alive = () => {
      clearTimeout(timer);
      if (silence) timer = setTimeout(end, silence);
    };
    alive();
    signal.addEventListener("abort", end);
    source.onerror = end;
    const take = (event) => {
      alive();
      heard(JSON.parse(event.data), "events");
    };
    for (const name of names) source.addEventListener(name, take);
  });
}

/**
 * Follows `events` (a URL; those called `names`, or without a name), or `ask()` while there is no place, until the function it returns is called.
 * `heard(value, how)` is told each value; `lost()` that there was none.
 */
export function follow({ places, events, names = ["message"], silence, ask, heard, lost }) {
  const over = new AbortController();
  const tell = (value, how) => over.signal.aborted || heard(value, how);
  (async () => {
    while (!over.signal.aborted) {
      const leave = await place(places);
      if (leave) {
        if (!over.signal.aborted) await listen(events, names, silence, over.signal, tell);
        leave();
        if (!over.signal.aborted) lost?.();
      } else if (ask) {
        await ask().then((value) => tell(value, "asking"), () => over.signal.aborted || lost?.());
      }
      if (!over.signal.aborted) await pause(EVERY);
    }
  })();
  return () => over.abort();
}

/** Fetches JSON; what went wrong is an error whose message is for people. */
export async function request(url, options = {}) {
  let response;
  try {
    response = await fetch(url, { cache: "no-store", signal: AbortSignal.timeout(options.patience ?? 10_000), ...options });
  } catch (error) {
    throw new Error(error.name === "TimeoutError" ? "no answer in time" : "the stack cannot be reached");
  }
  const body = await response.json().catch(() => ({}));
  if (!response.ok) throw new Error(body.detail ?? body.title ?? `HTTP ${response.status}`);
  return body;
}

/** Posts JSON. */
export const post = (url, body, options = {}) =>
  request(url, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), ...options });
