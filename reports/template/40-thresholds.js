// Every min_num_params inside one plateau gives the same wrapping: a chart of plateaus.

// A log axis on which no plateau is narrower than a few pixels, so that each can be seen and hit, and none
// takes the room of more than a decade. Positions between the ends of a plateau are logarithmic.
function plateauAxis(left, right) {
  const start = p => Math.max(.5, p.min_num_params.lo), end = p => p.min_num_params.hi === null ? start(p) * 4 : Math.max(p.min_num_params.hi, start(p)) + 1;
  const decades = ordered.map(p => Math.min(1, Math.log10(end(p) / start(p)))), total = decades.reduce((a, d) => a + d, 0);
  const narrowest = Math.min(8, .7 * (right - left) / ordered.length), share = (right - left - narrowest * ordered.length) / (total || 1);
  const edges = [left];
  decades.forEach((d, i) => edges.push(edges[i] + narrowest + d * share));
  const at = value => {
    const i = Math.max(0, ordered.findLastIndex(p => start(p) <= value)), p = ordered[i];
    return edges[i] + (edges[i + 1] - edges[i]) * Math.min(1, Math.max(0, Math.log(value / start(p)) / Math.log(end(p) / start(p))));
  };
  return {edges, at, first: start(ordered[0]), last: end(ordered[ordered.length - 1])};
}

function thresholdChart(box) {
  const w = width(box), L = 52, R = 12, top = 24, upperH = 224, gap = 34, base = upperH + gap + 100, axis = plateauAxis(L, w - R), marks = [];
  const memory = memorySpan(), steps = timeSpan(p => p.step_low_ns, p => p.step_high_ns), y = linear(memory.low, memory.high, upperH, top), y2 = linear(steps.low, steps.high, base, upperH + gap);
  if (memory.budgetShown) marks.push(s("rect", {x: L, y: top, width: w - L - R, height: Math.max(0, y(budget / GIB) - top), class: "over-zone"}));
  for (const t of ticks(memory.low, memory.high, 5)) marks.push(line(L, y(t), w - R, y(t), "grid"), text(L - 8, y(t) + 4, tickText(t), {"text-anchor": "end"}));
  for (const t of ticks(steps.low, steps.high, 3)) marks.push(line(L, y2(t), w - R, y2(t), "grid"), text(L - 8, y2(t) + 4, tickText(t), {"text-anchor": "end"}));
  let labelled = -99;
  for (let d = 0; 10 ** d <= axis.last; ++d) {
    const x = axis.at(10 ** d);
    marks.push(line(x, base, x, base + 4, "axis"));
    if (x - labelled > 30 && x < w - R - 8) { marks.push(text(x, base + 18, short(10 ** d), {"text-anchor": "middle"})); labelled = x; }
  }
  marks.push(line(L, base, w - R, base, "axis"), text((L + w - R) / 2, base + 38, "min_num_params, log scale; very narrow and very wide plateaus are drawn nearer to equal", {"text-anchor": "middle", class: "wide-only"}),
    text((L + w - R) / 2, base + 38, "min_num_params, log scale, evened out", {"text-anchor": "middle", class: "narrow-only"}));
  marks.push(text(L, 14, "peak memory of a GPU, GiB", {class: "strong"}), text(L, upperH + gap - 8, `step time, ${steps.unit}`, {class: "strong"}));

  const plateau = (p, i) => {
    const a = axis.edges[i], span = axis.edges[i + 1] - a, color = ink(p), dash = {refused: "2 3", uncertain: "7 3"}[standing(p)];
    const level = (scale, value, low, high) => [
      s("rect", {x: a, y: scale(high), width: span, height: Math.max(0, scale(low) - scale(high)), fill: color, "fill-opacity": .16}),
      s("line", {x1: a, x2: a + span, y1: scale(value), y2: scale(value), stroke: color, "stroke-width": 3, "stroke-dasharray": dash})];
    return s("g", choice(p, "plateau", ordered),
      s("rect", {x: a, y: top, width: span, height: base - top, fill: p === current ? "var(--accent)" : "transparent", "fill-opacity": .1}),
      level(y, p.peak.process_bytes / GIB, p.peak.low_bytes / GIB, p.peak.high_bytes / GIB),
      level(y2, p.step_ns / steps.size, p.step_low_ns / steps.size, p.step_high_ns / steps.size),
      s("rect", {x: a, y: top, width: span, height: base - top, class: "halo", rx: 2}));
  };
  marks.push(s("g", {role: "radiogroup", "aria-label": "Plateaus of min_num_params"}, ordered.map(plateau)));
  if (memory.budgetShown) marks.push(line(L, y(budget / GIB), w - R, y(budget / GIB), "limit"), text(L + 4, y(budget / GIB) + (y(budget / GIB) < top + 16 ? 15 : -6), `out of memory above ${gib(budget)} GiB`, {class: "bad"}));
  if (recommended) {
    // Between the two charts there is always room.
    const i = ordered.indexOf(recommended), x = (axis.edges[i] + axis.edges[i + 1]) / 2;
    marks.push(s("path", {d: `M${x},${upperH + 4}l-5,8h10z`, fill: ink(recommended)}),
      text(Math.max(L + 150, Math.min(x, w - R - 38)), upperH + 25, "recommended", {class: STANDING[standing(recommended)].tone, "text-anchor": "middle"}));
  }
  return chart(w, base + 46, "Peak memory and step time against min_num_params", marks);
}

if (sweepsThresholds) section({
  id: "thresholds", nav: "Threshold", title: "Where the threshold bites",
  lead: "Every min_num_params inside one plateau produces exactly the same wrapping. Choose a plateau, not a number.",
  draw(box, p) {
    const far = !memorySpan().budgetShown && h("p", {class: "muted"}, `The budget of ${bytes(budget)} is far above the chart.`);
    box.replaceChildren(h("figure", {}, thresholdChart(box), h("figcaption", {}, h("b", {}, named(p.label)), ` (${word(p)}): min_num_params ${thresholds(p)}, peak ${peakText(p)}, step ${time(p.step_ns)} (${timeRange(p.step_low_ns, p.step_high_ns)})`)), standingKey(), far || "");
  },
});
