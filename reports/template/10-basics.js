// Elements, number formats, scales and tool tips. Nothing here knows what a plan is.

const byId = id => document.getElementById(id);

// Children that are strings become text nodes and attributes are set by name, so text from a model's file is
// never parsed as markup.
function fill(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (value !== undefined && value !== null && value !== false) element.setAttribute(key, value === true ? "" : value);
  }
  for (const child of children.flat(9)) if (child !== undefined && child !== null && child !== false) element.append(child);
  return element;
}
const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const s = (tag, attributes, ...children) => fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
const text = (x, y, words, attributes) => s("text", {x, y, ...attributes}, words);
const line = (x1, y1, x2, y2, style) => s("line", {x1, y1, x2, y2, class: style});
const table = (heads, rows, attributes) => h("div", {class: "scroll"}, h("table", attributes,
  h("thead", {}, h("tr", {}, heads.map(([name, right, style]) => h("th", {scope: "col", class: [right && "r", style].filter(Boolean).join(" ")}, name)))), h("tbody", {}, rows)));

// ---- words and numbers
const upper = words => words && words[0].toUpperCase() + words.slice(1);
const int = n => Math.round(n).toLocaleString("en-US").replace("-", "−");
const fixed = (v, digits) => v.toLocaleString("en-US", {minimumFractionDigits: digits, maximumFractionDigits: digits}).replace("-", "−");
const GIB = 2 ** 30;
const gib = n => fixed(n / GIB, 1);
function byteUnit(n) {
  const found = [["GiB", GIB], ["MiB", 2 ** 20], ["KiB", 2 ** 10]].find(([, size]) => Math.abs(n) >= size);
  return found || ["B", 1];
}
function bytes(n) {
  const [unit, size] = byteUnit(n), v = n / size;
  return fixed(v, unit === "B" || (unit !== "GiB" && Math.abs(v) >= 10) ? 0 : 1) + " " + unit;
}
function byteRange(low, high) {
  if (low === high) return bytes(low);
  const [unit, size] = byteUnit(Math.max(Math.abs(low), Math.abs(high))), digits = unit === "B" ? 0 : 1;
  return `${fixed(low / size, digits)} to ${fixed(high / size, digits)} ${unit}`;
}
function timeUnit(ns) {
  return ns >= 1e10 ? ["s", 1e9] : ns >= 1e6 || ns === 0 ? ["ms", 1e6] : ["µs", 1e3];
}
const inUnit = (ns, size) => { const v = ns / size; return v >= 100 ? int(v) : String(+v.toPrecision(3)); };
const time = ns => { const [unit, size] = timeUnit(ns); return inUnit(ns, size) + " " + unit; };
const timeRange = (low, high) => { const [unit, size] = timeUnit(high); return low === high ? time(low) : `${inUnit(low, size)} to ${inUnit(high, size)} ${unit}`; };
const percent = v => (v < 10 ? v.toFixed(1) : Math.round(v)) + " %";
function short(n) {
  const found = [["T", 1e12], ["B", 1e9], ["M", 1e6], ["k", 1e3]].find(([, size]) => n >= size);
  return found ? +(n / found[1]).toPrecision(3) + found[0] : String(n);
}
// Names may be endless or hold marks that turn the writing direction: the middle is cut, marks are shown as such
// and the rest is isolated.
const counted = (n, one) => `${int(n)} ${one}${n === 1 ? "" : "s"}`;
function cut(words, most = 90) {
  const plain = words.replace(/[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, "\ufffd"), letters = Array.from(plain);
  return letters.length <= most ? plain : letters.slice(0, most >> 1).join("") + "…" + letters.slice(letters.length - (most >> 1) + 1).join("");
}
const named = (words, most) => h("bdi", {title: words.length > (most || 90) && words.slice(0, 2000)}, cut(words, most));
const shortClass = name => name.slice(name.lastIndexOf(".") + 1) || name;

// ---- scales
const linear = (d0, d1, r0, r1) => v => r0 + (v - d0) / ((d1 - d0) || 1) * (r1 - r0);
function ticks(low, high, count) {
  const raw = (high - low) / count;
  if (!(raw > 0)) return [low];
  const magnitude = 10 ** Math.floor(Math.log10(raw)), step = [1, 2, 5, 10].map(k => k * magnitude).find(k => k >= raw * (1 - 1e-9)), out = [];
  for (let k = Math.ceil(low / step); k * step <= high + step * 1e-6; ++k) out.push(+(k * step).toPrecision(12));
  return out;
}

// ---- charts
let paper = 0;  // page width in CSS pixels while printing
const width = box => paper || Math.max(300, Math.floor(box.clientWidth));
const chart = (w, height, label, ...marks) => s("svg", {viewBox: `0 0 ${w} ${height}`, role: "group", "aria-label": label}, marks);

// ---- tool tip: shows `lines` while the pointer is over the element
function tipped(...lines) {
  const tip = byId("tip");
  return {
    onmousemove(event) {
      tip.replaceChildren(...lines.map(l => h("div", {}, l)));
      tip.style.display = "block";
      const r = tip.getBoundingClientRect(), below = event.clientY + 18;
      tip.style.left = Math.max(6, Math.min(event.clientX + 14, innerWidth - r.width - 8)) + "px";
      tip.style.top = Math.max(6, below + r.height > innerHeight ? event.clientY - r.height - 10 : below) + "px";
    },
    onmouseleave() { tip.style.display = "none"; },
  };
}
