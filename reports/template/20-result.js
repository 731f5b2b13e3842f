// The result and what is said about it in more than one section.

const result = JSON.parse(byId("report-data").textContent);
const {plans, job, cluster, verdict} = result;
const budget = cluster.budget_bytes;

// A section is one file: section({id, nav, title, lead, draw(box, plan)}), drawn again for each selection.
// `plan` is undefined only where a result has no plans; such a section is drawn when `always` is set.
const sections = [];
const section = s => sections.push(s);

// ---- where a plan stands
const raises = d => d.severity === "error" || d.severity === "forward_error";  // while building, or at the first forward
const refused = p => p.diagnostics.some(raises);
const standing = p => refused(p) ? "refused" : p.fits === true ? "fits" : p.fits === false ? "over" : "uncertain";
const STANDING = {
  fits: {word: "fits", badge: "✓ Fits", tone: "ok"},
  uncertain: {word: "uncertain", badge: "? Uncertain", tone: "warn"},
  over: {word: "out of memory", badge: "✕ Out of memory", tone: "bad"},
  refused: {word: "refused", badge: "⊘ Refused by PyTorch", tone: "off"},
};
const word = p => STANDING[standing(p)].word;
const recommended = plans[result.recommended];  // undefined when it is null
// Where nothing is recommended the report opens with the plan that comes nearest.
const home = recommended || [...plans].sort((a, b) => refused(a) - refused(b) || a.peak.process_bytes - b.peak.process_bytes || a.step_ns - b.step_ns)[0];
const ink = p => p === recommended && standing(p) === "fits" ? "var(--ok)" : {fits: "var(--accent)", uncertain: "var(--warn)", over: "var(--bad)", refused: "var(--off)"}[standing(p)];

const ordered = [...plans].sort((a, b) => a.min_num_params.lo - b.min_num_params.lo);
function thresholds(p) {
  const {lo, hi} = p.min_num_params;
  return hi === null ? (lo <= 0 ? "any" : `≥ ${int(lo)}`) : lo === hi ? int(lo) : lo <= 0 ? `≤ ${int(hi)}` : `${int(lo)} – ${int(hi)}`;
}
// Plans that no threshold tells apart are not those of a size policy.
const sweepsThresholds = plans.length === 1 || plans.some(p => p.min_num_params.lo > 0 || p.min_num_params.hi !== null);
const atThreshold = p => `min_num_params ${thresholds(p)}`;
const settingsText = p => Object.entries(p.settings || {}).map(([option, value]) => `${option} ${value}`).join(", ");
const exposedShare = p => p.step_ns > 0 ? 100 * p.exposed_ns / p.step_ns : 0;
const peakText = p => `${bytes(p.peak.process_bytes)} (${byteRange(p.peak.low_bytes, p.peak.high_bytes)})`;
// What is left of the budget: in GiB even where it is next to nothing, since it is a difference of such sizes.
const leftText = p => gib(p.left_bytes) + " GiB";
function leftRange(p) {
  const least = p.left_bytes + p.peak.process_bytes - p.peak.high_bytes, most = p.left_bytes + p.peak.process_bytes - p.peak.low_bytes;
  return most < 0 ? `short by ${gib(-most)} to ${gib(-least)} GiB` : `left, ${gib(least)} to ${gib(most)} GiB`;
}
const spoken = p => `${cut(p.label)}: ${sweepsThresholds ? atThreshold(p) + ", " : ""}${bytes(p.peak.process_bytes)} peak, ${time(p.step_ns)} step, ${word(p)}${p === recommended ? ", recommended" : ""}`;

// ---- terms of the memory
const TERMS = {
  parameter_shards: "parameter shards", gradient_shards: "gradient shards", optimizer_state: "optimizer state",
  unsharded_parameters: "unsharded parameters", unsharded_gradients: "unsharded gradients", activations: "activations",
  logits: "logits and loss", workspaces: "workspaces", cuda_context: "CUDA context", nccl_buffers: "NCCL buffers",
  allocator_slack: "allocator slack",
};
const termName = term => Object.hasOwn(TERMS, term) ? TERMS[term] : cut(term.replaceAll("_", " "), 40);
const termInk = term => term === "allocator_slack" ? "url(#hatch)" : `var(--${Object.hasOwn(TERMS, term) ? term : "other_term"})`;
const termBytes = n => Math.abs(n) < GIB / 100 ? bytes(n) : fixed(n / GIB, 2) + " GiB";  // terms stand in one column: one unit
const termRange = t => t.exact ? "exact" : t.high_bytes < GIB / 100 ? byteRange(t.low_bytes, t.high_bytes) : `${fixed(t.low_bytes / GIB, 2)} to ${fixed(t.high_bytes / GIB, 2)} GiB`;
const largestTerms = p => [...p.memory].filter(t => t.bytes > 0).sort((a, b) => b.bytes - a.bytes);

// ---- the selected plan; 90-page.js redraws everything after a change
let current = home;

// One choice out of several marks of a chart: one tab stop, arrow keys move through `order`.
function choice(p, key, order, attributes) {
  const move = step => select(order[Math.max(0, Math.min(order.length - 1, order.indexOf(p) + step))], key);
  const keys = {ArrowRight: () => move(1), ArrowUp: () => move(1), ArrowLeft: () => move(-1), ArrowDown: () => move(-1),
    Home: () => move(-order.length), End: () => move(order.length), Enter: () => select(p, key), " ": () => select(p, key)};
  return {
    class: "pick" + (p === current ? " selected" : ""), role: "radio", "aria-checked": String(p === current), "aria-label": spoken(p),
    tabindex: p === current ? 0 : -1, "data-key": `${key}-${plans.indexOf(p)}`, onclick: () => select(p, key),
    onkeydown(event) { if (keys[event.key]) { event.preventDefault(); keys[event.key](); } },
    ...tipped(h("b", {}, named(p.label)), ...(sweepsThresholds ? [atThreshold(p)] : []), `peak ${peakText(p)}`, `step ${time(p.step_ns)} (${timeRange(p.step_low_ns, p.step_high_ns)})`,
      h("span", {class: "muted"}, `${upper(word(p))}${p === recommended ? ", recommended" : ""} · ${counted(p.units, "unit")}`)),
    ...attributes,
  };
}

// What the memory axes of the charts span; the budget is left out where every plan is far below it.
function memorySpan() {
  const low = Math.min(...plans.map(p => p.peak.low_bytes)), high = Math.max(...plans.map(p => p.peak.high_bytes));
  const shown = high > .4 * budget, span = [shown ? Math.min(low, budget) : low, shown ? Math.max(high, budget) : high].map(b => b / GIB);
  const margin = Math.max((span[1] - span[0]) * .08, span[1] * .01);
  return {low: Math.max(0, span[0] - margin), high: span[1] + margin, budgetShown: shown};
}
function timeSpan(lowOf, highOf) {
  const low = Math.min(...plans.map(lowOf)), high = Math.max(...plans.map(highOf));
  const [unit, size] = timeUnit(high), margin = Math.max((high - low) * .05, high * .005);
  return {low: (low - margin) / size, high: (high + margin) / size, unit, size};
}
const tickText = v => v.toLocaleString("en-US", {maximumSignificantDigits: 6});
const standingKey = () => h("div", {class: "legend"}, ["fits", "uncertain", "over", "refused"].filter(k => plans.some(p => standing(p) === k && !(k === "fits" && p === recommended)))
  .map(k => h("span", {class: "mark " + k, style: `--c:var(--${{fits: "accent", uncertain: "warn", over: "bad", refused: "off"}[k]})`}, STANDING[k].word)),
  recommended && h("span", {class: "mark", style: `--c:${ink(recommended)}`}, "recommended"));
