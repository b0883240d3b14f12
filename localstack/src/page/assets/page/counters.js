// The counters of the post in focus beside its likes, and what a person can do to each.

import { el, mark, number, say } from "./dom.js";

/**
 * Every counter that the page shows. A set has members: a person is one of its retweets, and each reply is one. What a
 * person does to a sum only adds.
 */
export const COUNTERS = {
  likes: { verb: "Like", done: "Liked", undone: "Unliked", member: "person" },
  retweets: { verb: "Retweet", done: "Retweeted", undone: "Unretweeted", member: "person" },
  replies: { verb: "Reply", done: "Replied to", member: "reply" },
  views: { verb: "View", done: "Viewed" },
};

const OTHERS = Object.keys(COUNTERS).filter((name) => name !== "likes");

/** Shows them as a list; `use(name)` is called for what a person does. */
export function others(use) {
  const root = el("ul", { class: "others", "aria-label": "Other counters" });
  const shown = OTHERS.map((name) => {
    const { verb, undone } = COUNTERS[name];
    const button = el("button", { type: "button", class: "use", "data-counter": name }, verb);
    button.addEventListener("click", () => use(name));
    const [count, exact] = [el("span", { class: "count" }, "–"), el("span", { class: "exact" })];
    root.append(el("li", { "data-counter": name }, count, el("span", { class: "name" }, name), exact, button));
    return { name, button, count, exact, toggles: undone !== undefined };
  });
  const fill = (known, mine, busy, meaning) => {
    for (const { name, button, count, exact, toggles } of shown) {
      const { verb, done } = COUNTERS[name];
      mark(button, "aria-busy", busy(name));
      if (toggles) {
        mark(button, "aria-pressed", mine[name] ?? false);
        say(button, mine[name] ? done : verb);
      }
      const value = known?.[name];
      if (!value) continue;
      say(count, number(value.value));
      mark(exact, "data-exact", value.exact);
      mark(exact, "title", meaning[value.exact]);
      say(exact, claim(value));
    }
  };
  return { root, fill };
}

/** What an answer claims of its number. */
export function claim({ exact, fresh }) {
  return `${exact ? "exact" : "not exact"}${fresh ? "" : ", not fresh"}`;
}

/** Says in `root` that a counter has reached a threshold, and who or what did. The newest stays until another post is shown. */
export function celebrate(root, { post_id: post, counter, n, member, event, state }) {
  const place = event && (event.offset === undefined ? `between ${event.from} and ${event.to}` : `at ${event.offset}`);
  const who = {
    located: `${member} was first`,
    in_log: `the event that did it lies ${place} in partition ${event?.partition}`,
    unwitnessed: "there is no winner, since a correction crossed it, or it was crossed before it was watched for",
  };
  const text = `${number(n)} ${counter} of ${post}: ${who[state] ?? "reached"}.`;
  root.replaceChildren(el("span", { class: "spark", "aria-hidden": "true" }, "✦"), el("span", {}, text));
}
