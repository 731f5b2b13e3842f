// All plans side by side: memory against time, what they send, and a table that repeats every number.

// The plans that no other one beats in both memory and time.
function frontier() {
  const candidates = plans.filter(p => standing(p) === "fits").sort((a, b) => a.peak.process_bytes - b.peak.process_bytes || a.step_ns - b.step_ns), out = [];
  for (const p of candidates) if (!out.length || p.step_ns < out[out.length - 1].step_ns) out.push(p);
  return out;
}

function scatter(box) {
  const w = width(box), height = 360, L = 56, R = 12, top = 24, base = height - 40, memory = memorySpan(), steps = timeSpan(p => p.step_ns * .985, p => p.step_ns * 1.015), marks = [];
  const x = linear(memory.low, memory.high, L, w - R), y = linear(steps.low, steps.high, base, top), px = p => x(p.peak.process_bytes / GIB), py = p => y(p.step_ns / steps.size);
  if (memory.budgetShown) marks.push(s("rect", {x: x(budget / GIB), y: top, width: w - R - x(budget / GIB), height: base - top, class: "over-zone"}));
  for (const t of ticks(memory.low, memory.high, w / 90)) marks.push(line(x(t), top, x(t), base, "grid"), text(x(t), base + 16, tickText(t), {"text-anchor": "middle"}));
  for (const t of ticks(steps.low, steps.high, 5)) marks.push(line(L, y(t), w - R, y(t), "grid"), text(L - 7, y(t) + 4, tickText(t), {"text-anchor": "end"}));
  marks.push(text((L + w - R) / 2, base + 34, "peak memory of a GPU, GiB", {"text-anchor": "middle"}), text(L, 14, `step time, ${steps.unit}`, {class: "strong"}));
  if (memory.budgetShown) marks.push(line(x(budget / GIB), top, x(budget / GIB), base, "limit"), text(x(budget / GIB) - 5, base - 8, `budget ${gib(budget)} GiB`, {class: "bad", "text-anchor": "end"}));
  const best = frontier();
  if (best.length > 1) marks.push(s("path", {d: "M" + best.map(p => `${px(p)},${py(p)}`).join("L"), class: "frontier"}));
  // Intervals of time are wider than what tells the plans apart, since the plans share most of the error: cut off.
  const inside = ns => Math.max(top, Math.min(base, y(ns / steps.size)));
  marks.push(s("path", {d: `M${x(current.peak.low_bytes / GIB)},${py(current)}H${x(current.peak.high_bytes / GIB)}M${px(current)},${inside(current.step_low_ns)}V${inside(current.step_high_ns)}`, class: "whisker"}));
  const largest = Math.max(1, ...plans.map(p => p.largest_unit_numel)), inOrder = [...plans].sort((a, b) => a.peak.process_bytes - b.peak.process_bytes);
  // Small circles last, so that a large one never hides them; the shape says where a plan stands, not only the colour.
  const radius = p => 4 + (plans.length > 24 ? 5 : 9) * Math.sqrt(p.largest_unit_numel / largest);
  marks.push(s("g", {role: "radiogroup", "aria-label": "Plans by memory and time"}, [...plans].sort((a, b) => b.largest_unit_numel - a.largest_unit_numel).map(p => {
    const cx = px(p), cy = py(p), r = radius(p), color = ink(p), k = r * .62;
    return s("g", choice(p, "point", inOrder),
      s("circle", {cx, cy, r, fill: color, "fill-opacity": {fits: .65, over: .3}[standing(p)] || .06, stroke: color, "stroke-width": 1.5, "stroke-dasharray": {uncertain: "4 2", refused: "2 2"}[standing(p)]}),
      standing(p) === "over" && s("path", {d: `M${cx - k},${cy - k}l${2 * k},${2 * k}m0,${-2 * k}l${-2 * k},${2 * k}`, stroke: color, "stroke-width": 1.5}),
      standing(p) === "refused" && s("path", {d: `M${cx - k},${cy + k}l${2 * k},${-2 * k}`, stroke: color, "stroke-width": 1.5}),
      s("circle", {cx, cy, r: r + 4, class: "halo"}));
  })));
  if (recommended) {
    const left = px(recommended) > w - 130;
    marks.push(text(px(recommended) + (left ? -1 : 1) * (radius(recommended) + 7), py(recommended) + 4, "recommended", {class: STANDING[standing(recommended)].tone, "text-anchor": left ? "end" : "start"}));
  }
  return chart(w, height, "Plans: peak memory against step time", marks);
}

const collectivesText = list => list.map(c => `${int(c.count)} × ${cut(c.op).replaceAll("_", "-")}, ${bytes(c.bytes)}`).join("; ") || "none";
function traffic(p) {
  const rows = p.strategies.map(t => h("tr", {"aria-current": t.strategy === job.strategy && "true"}, h("th", {scope: "row"}, named(t.strategy), t.strategy === job.strategy && " (this job)"),
    h("td", {class: "r"}, bytes(t.sent_bytes)), h("td", {}, collectivesText(t.collectives))));
  return h("div", {}, h("h3", {}, "What it sends: ", named(p.label)), h("p", {class: "muted"}, "Exact bytes that each GPU sends in one step, for each sharding strategy with the same units."),
    rows.length > 0 ? table([["Strategy"], ["Sent", true], ["Collectives in a step"]], rows) : h("p", {}, `${bytes(p.sent_bytes)}: ${collectivesText(p.collectives)}`),
    h("p", {class: "muted small"}, `Largest unit: `, named(p.largest_unit || "(root)"), `, ${int(p.largest_unit_numel)} parameters. The root keeps ${int(p.root_numel)} parameters.`));
}

const PLAN_COLUMNS = [
  {key: "threshold", head: "Plan", value: p => p.min_num_params.lo},
  {key: "fits", head: "Fits", value: p => ["fits", "uncertain", "over", "refused"].indexOf(standing(p))},
  {key: "peak", head: "Peak", value: p => p.peak.process_bytes},
  {key: "left", head: "Left", value: p => -p.left_bytes},
  {key: "step", head: "Step", value: p => p.step_ns},
  {key: "exposed", head: "Exposed", value: exposedShare},
  {key: "sent", head: "Sent", value: p => p.sent_bytes},
  {key: "units", head: "Units", value: p => p.units},
  {key: "largest", head: "Largest unit", value: p => p.largest_unit_numel},
];
let sortedBy = PLAN_COLUMNS[0], upwards = true;

function planTable(again) {
  const rows = [...ordered].sort((a, b) => (sortedBy.value(a) - sortedBy.value(b)) * (upwards ? 1 : -1));
  const head = (c, i) => h("th", {class: i > 1 && "r", scope: "col", "aria-sort": c === sortedBy ? (upwards ? "ascending" : "descending") : "none"},
    h("button", {"data-key": "sort-" + c.key, onclick() { upwards = c === sortedBy ? !upwards : true; sortedBy = c; again("sort-" + c.key); }}, c.head, c === sortedBy ? (upwards ? " ↑" : " ↓") : ""));
  const under = words => h("span", {class: "under num"}, words);
  const row = p => h("tr", {"aria-current": p === current && "true", onclick: () => select(p, "row")},
    h("th", {scope: "row"}, h("button", {"data-key": `row-${plans.indexOf(p)}`, "aria-label": "Show " + spoken(p)}, named(p.label)), p === recommended && h("span", {class: "star " + STANDING[standing(p)].tone}, " ★ recommended"), under(sweepsThresholds ? thresholds(p) : cut(settingsText(p), 90))),
    h("td", {class: STANDING[standing(p)].tone}, upper(word(p))),
    h("td", {class: "r"}, bytes(p.peak.process_bytes), under(byteRange(p.peak.low_bytes, p.peak.high_bytes))),
    h("td", {class: "r"}, leftText(p)),
    h("td", {class: "r"}, time(p.step_ns), under(timeRange(p.step_low_ns, p.step_high_ns))),
    h("td", {class: "r"}, percent(exposedShare(p))), h("td", {class: "r"}, bytes(p.sent_bytes)), h("td", {class: "r"}, int(p.units)), h("td", {class: "r"}, short(p.largest_unit_numel)));
  return h("div", {class: "scroll"}, h("table", {id: "plan-table"}, h("thead", {}, h("tr", {}, PLAN_COLUMNS.map(head))), h("tbody", {}, rows.map(row))));
}

section({
  id: "plans", nav: "Plans", title: "All plans",
  lead: "Left and low is better; the area of a circle grows with the largest unit; the cross is the interval of the selected plan. Select a plan to see it everywhere in this report.",
  draw(box, p) {
    const figure = h("figure", {}), list = h("div", {class: "apart"});
    const listPlans = key => { list.replaceChildren(planTable(listPlans)); if (key) list.querySelector(`[data-key="${key}"]`).focus(); };
    box.replaceChildren(h("div", {class: "two"}, figure, traffic(p)), list);
    figure.replaceChildren(scatter(figure), standingKey());
    listPlans();
  },
});
