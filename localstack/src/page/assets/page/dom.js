// Elements and texts. What a server said is only ever put in as text.

/** An element with `props` (attributes; `class` too) and children. */
export function el(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

/** An element of a drawing. */
export function svg(tag, props = {}) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(props)) node.setAttribute(name, value);
  return node;
}

export const byId = (id) => document.getElementById(id);

/** Sets a text, and leaves the page alone if it is there already. */
export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Sets an attribute, and leaves the page alone if it is there already. */
export function mark(node, name, value) {
  if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
}

/**
 * A list in the page that follows `items`: an element stays the same while its key does, so that focus stays too.
 * `make(key)` gives an object with a `root`; `show(made, item)` fills it.
 */
export function list(parent, key, make, show) {
  const made = new Map();
  return (items) => {
    const keys = new Set(items.map(key));
    for (const [old, one] of made) {
      if (!keys.has(old)) {
        one.root.remove();
        made.delete(old);
      }
    }
    items.forEach((item, at) => {
      const id = key(item);
      if (!made.has(id)) made.set(id, make(id));
      const one = made.get(id);
      if (parent.children[at] !== one.root) parent.insertBefore(one.root, parent.children[at] ?? null);
      show(one, item);
    });
  };
}

const whole = new Intl.NumberFormat("en");

/** 12,345 */
export const number = (value) => whole.format(Math.round(value));

/** A span of milliseconds as people say it. */
export function span(ms) {
  if (ms < 0.95) return "<1 ms";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 9950) return `${(ms / 1000).toFixed(1)} s`;
  if (ms < 120_000) return `${Math.round(ms / 1000)} s`;
  if (ms < 7_200_000) return `${Math.round(ms / 60_000)} min`;
  return `${Math.round(ms / 3_600_000)} h`;
}

/** The time of day. */
export const clock = (ms) => new Date(ms).toLocaleTimeString("en-GB");
