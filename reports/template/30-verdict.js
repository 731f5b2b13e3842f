// Does it fit, by how much, what decides, and what to type.

const largestUnit = p => `The largest unit, ${cut(p.largest_unit || "the root")}, holds ${short(p.largest_unit_numel)} parameters; while it is in use they are whole on every GPU.`;

function verdictHead(p) {
  const atHome = p === home, stands = p ? standing(p) : "over";
  const badge = !recommended && atHome && verdict.fits === false && stands !== "refused" ? "✕ No plan fits" : STANDING[stands].badge;
  return h("div", {class: "verdict-head"},
    h("h2", {class: "badge " + STANDING[stands].tone, id: "h-verdict"}, badge),
    p && h("span", {class: "big num", id: "peak"}, gib(p.peak.process_bytes)),
    p && h("span", {class: "of num"}, `of ${gib(budget)} GiB on each GPU · estimate ${byteRange(p.peak.low_bytes, p.peak.high_bytes)}`));
}

function verdictWhy(p) {
  const parts = [];
  if (p) parts.push(h("b", {}, named(upper(p.label))), sweepsThresholds ? `, ${atThreshold(p)}. ` : settingsText(p) ? `, with ${cut(settingsText(p), 160)}. ` : ". ");
  if (!p || p === home) {
    parts.push(named(upper(verdict.text).replace(/[^.!?]$/, "$&."), 1000));
  } else {
    const [first, second] = largestTerms(p);
    const stand = {
      fits: `Fits with ${leftText(p)} to spare.`,
      uncertain: "The budget lies inside the interval of the estimate: it may fit or not.",
      over: `Needs ${gib(-p.left_bytes)} GiB more than there is. ${largestUnit(p)}`,
      refused: "PyTorch raises an error for this plan.",
    }[standing(p)];
    parts.push(stand, first ? ` ${upper(termName(first.term))} take ${bytes(first.bytes)} of the peak` + (second ? `, ${termName(second.term)} ${bytes(second.bytes)}.` : ".") : "");
  }
  if (p && standing(p) === "fits" && p.peak.high_bytes > budget) parts.push(" The margin is smaller than the error of the estimate: measure before you rely on it.");
  return h("p", {class: "why"}, parts);
}

function findings(p) {
  if (!p.diagnostics.length) return null;
  const entry = d => h("li", {class: raises(d) && "error"}, h("b", {}, {error: "PyTorch refuses: ", forward_error: "PyTorch raises at the first forward: "}[d.severity] || "Warning: "), named(d.message, 600),
    h("span", {class: "muted"}, ` Rule ${cut(d.rule)}, unit `, named(d.unit || "(root)"), d.tensors.slice(0, 6).map(t => [", ", named(t)]), d.tensors.length > 6 && ` and ${int(d.tensors.length - 6)} more`, "."));
  const sorted = [...p.diagnostics].sort((a, b) => raises(b) - raises(a)), shown = sorted.slice(0, 4), rest = sorted.slice(4, 200);
  return [h("ul", {class: "findings"}, shown.map(entry)),
    rest.length > 0 && h("details", {}, h("summary", {}, counted(sorted.length - 4, "more finding")), h("ul", {class: "findings"}, rest.map(entry)))];
}

function gauge(p, box) {
  const w = width(box), terms = p.memory.filter(t => t.bytes > 0), sum = terms.reduce((a, t) => a + t.bytes, 0);
  const x = linear(0, Math.max(budget, p.peak.high_bytes, sum) * 1.02, 0, w), rest = p.peak.process_bytes - sum;
  let at = 0;
  const bar = (size, color, ...lines) => {
    const mark = s("rect", {x: x(at), y: 6, width: Math.max(.5, x(size) - 1), height: 24, fill: color, ...tipped(...lines)});
    at += size;
    return mark;
  };
  const bars = terms.map(t => bar(t.bytes, termInk(t.term), h("b", {}, termName(t.term)), `${termBytes(t.bytes)}, ${t.exact ? "exact" : "estimate " + termRange(t)}`, h("span", {class: "muted"}, t.note)));
  if (rest > p.peak.process_bytes * .002) bars.push(bar(rest, "url(#hatch)", h("b", {}, "not itemised"), bytes(rest)));
  const a = x(p.peak.low_bytes), b = x(p.peak.high_bytes);
  return s("svg", {viewBox: `0 0 ${w} 58`, role: "img", "aria-label": `Peak memory ${peakText(p)} of ${bytes(budget)}: ` + largestTerms(p).map(t => `${termName(t.term)} ${bytes(t.bytes)}`).join(", ")},
    s("rect", {x: 0, y: 6, width: w, height: 24, rx: 3, fill: "var(--grid)"}), bars,
    s("line", {x1: x(budget), x2: x(budget), y1: 0, y2: 44, class: "limit"}),
    s("path", {d: `M${a},34v6M${a},37H${b}M${b},34v6`, class: "whisker"}), text(Math.max(0, a - 6), 41, "interval of the estimate", {"text-anchor": a > 150 ? "end" : "start", ...(a <= 150 && {x: b + 6})}),
    text(x(budget), 55, `budget ${gib(budget)} GiB`, {"text-anchor": "end", class: "bad"}));
}

function figures(p) {
  const figure = (value, words) => h("div", {class: "kpi"}, h("b", {class: "num"}, value), h("span", {}, words));
  const tokens = job.batch * job.seq * job.accumulate;
  return h("div", {class: "kpis"},
    figure(leftText(p), `${leftRange(p)}${p === home && verdict.decided_by ? `; decided by ${termName(verdict.decided_by)}` : ""}`),
    figure(time(p.step_ns), `a step, estimate ${timeRange(p.step_low_ns, p.step_high_ns)}`),
    tokens > 0 && p.step_ns > 0 && figure(int(tokens / p.step_ns * 1e9), "tokens/s on each GPU, estimate"),
    figure(percent(exposedShare(p)), `of the step waits for communication, ${time(p.exposed_ns)}`),
    figure(bytes(p.sent_bytes), "sent by each GPU in a step"),
    figure(int(p.units), `FSDP unit${p.units === 1 ? "" : "s"}, the largest of ${short(p.largest_unit_numel)} parameters`));
}

function changes(title) {
  return verdict.next.length > 0 && [h("h3", {class: "apart"}, title), h("dl", {class: "hints"}, verdict.next.flatMap(n => [h("dt", {}, named(n.change, 200)), h("dd", {}, named(n.effect, 400))]))];
}

function codeBox(p) {
  const names = Object.keys(p.code || {});
  if (!names.length) return null;
  const code = h("code", {}, p.code[names[0]]);
  const tabs = names.map((name, i) => h("button", {"aria-pressed": String(i === 0), onclick(event) {
    tabs.forEach(t => t.setAttribute("aria-pressed", String(t === event.currentTarget)));
    code.textContent = p.code[name];
  }}, name));
  const copy = h("button", {async onclick() {
    try { await navigator.clipboard.writeText(code.textContent); }
    catch { getSelection().selectAllChildren(code); document.execCommand("copy"); }
    copy.textContent = "Copied";
    setTimeout(() => { copy.textContent = "Copy"; }, 1500);
  }}, "Copy");
  return [h("div", {class: "do-head"}, h("h3", {}, p === recommended && standing(p) === "fits" ? "Do this" : "Code of this plan"), tabs, copy), h("pre", {tabindex: 0, role: "region", "aria-label": "Code"}, code)];
}

function action(p) {
  if (!p || (p === home && !recommended)) return h("div", {class: "do"}, changes("What would change it"));
  if (standing(p) === "over" || standing(p) === "refused") {
    return recommended && p !== recommended && h("div", {class: "do"}, h("h3", {}, "Do this instead"),
      h("p", {}, sweepsThresholds ? ["Keep ", h("code", {}, "min_num_params"), ` in ${thresholds(recommended)}: `] : "", named(recommended.label), `, ${bytes(recommended.peak.process_bytes)}, ${word(recommended)}.`));
  }
  return h("div", {class: "do"}, codeBox(p), p === home && changes("Next levers"));
}

function memoryTable(p) {
  const row = t => h("tr", {}, h("th", {scope: "row"}, h("span", {class: "swatch", style: `--c:var(--${Object.hasOwn(TERMS, t.term) ? t.term : "other_term"})`}), termName(t.term), h("span", {class: "under narrow-only"}, named(t.note, 300))),
    h("td", {class: "r"}, termBytes(t.bytes), h("span", {class: "under narrow-only"}, termRange(t))), h("td", {class: "r wide-only"}, termRange(t)), h("td", {class: "wide-only"}, named(t.note, 300)));
  const share = `PyTorch allocates ${termBytes(p.peak.allocated_bytes)} and reserves ${termBytes(p.peak.reserved_bytes)} of it`;
  const total = h("tr", {class: "total"}, h("th", {scope: "row"}, "peak of the process", h("span", {class: "under narrow-only"}, share)), h("td", {class: "r"}, termBytes(p.peak.process_bytes), h("span", {class: "under narrow-only"}, termRange(p.peak))), h("td", {class: "r wide-only"}, termRange(p.peak)), h("td", {class: "wide-only"}, share));
  return [h("h3", {class: "apart"}, "Where the memory of one GPU goes"), table([["Term"], ["At the peak", true], ["Interval", true, "wide-only"], ["What it is", false, "wide-only"]], [...p.memory.map(row), total], {id: "memory-table"})];
}

section({
  id: "verdict", nav: "Verdict", always: true,
  draw(box, p) {
    const legend = p && h("div", {class: "legend"}, p.memory.filter(t => t.bytes > p.peak.process_bytes * .001).map(t => t.term === "allocator_slack" ? h("span", {class: "hatch"}, termName(t.term)) : h("span", {style: `--c:${termInk(t.term)}`}, termName(t.term))));
    box.replaceChildren(...[verdictHead(p), verdictWhy(p), p && findings(p), p && gauge(p, box), legend, p && figures(p), action(p), p && memoryTable(p)].flat(9).filter(Boolean));
  },
});
