// The page: a snapshot of the stack each second, shown by the modules beside this one.

import { byId, mark, number, say, span } from "./page/dom.js";
import { follow, request } from "./page/live.js";
import { chart } from "./page/chart.js";
import { posts } from "./page/posts.js";
import { actions, stack } from "./page/stack.js";
import { trending } from "./page/trending.js";

// Ages are told by the stack's clock: this one may be another machine's.
let ahead = 0;
const now = () => Date.now() + ahead;

const shown = posts(now);
const top = trending(shown.show);
const show = stack();
const rate = chart(byId("chart-rate"), {
  title: "Events a second",
  series: [{ name: "applied", kind: "rate", of: ({ load }) => load.events_per_second }],
  write: number,
  least: 10,
});
const staleness = chart(byId("chart-staleness"), {
  title: "Staleness",
  series: [
    { name: "99 %", kind: "p99", of: ({ staleness }) => staleness?.p99_ms ?? null },
    { name: "median", kind: "p50", of: ({ staleness }) => staleness?.p50_ms ?? null },
  ],
  write: (ms) => (ms === 0 ? "0" : span(ms)),
  least: 100,
});
actions();

const connection = byId("connection");
let untouched = true;
let since = null;

function state(name, text) {
  mark(connection, "data-state", name);
  mark(document.documentElement, "data-connection", name);
  say(connection, text);
}

follow({
  places: ["tally-state"],
  events: "/local/events",
  silence: 5_000,
  ask: () => request("/local/state"),
  heard(snapshot, how) {
    ahead = snapshot.at - Date.now();
    // Not when the connection is lost: the old stack's last answers may come after that.
    if (since !== null && snapshot.since !== since) {
      shown.forget();
      top.forget();
    }
    since = snapshot.since;
    state("live", how === "events" ? "Live" : "Live, once a second");
    show(snapshot);
    rate(snapshot);
    staleness(snapshot);
    shown.across(snapshot.mirror !== null);
    shown.offer(snapshot.posts);
    top.offer(snapshot.trending, snapshot.parts.some(({ name }) => name === "trends"));
    // Until a person writes there, drift goes to the hottest post.
    const drift = document.forms.namedItem("drift").elements.post_id;
    if (untouched && drift.value === "" && snapshot.posts.length > 0) drift.value = snapshot.posts[0];
    untouched = false;
  },
  lost() {
    state("lost", "Connection lost, trying again");
  },
});
