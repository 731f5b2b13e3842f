// The module tree as an icicle: width is parameters, one colour is one unit.

const modules = result.modules || [];
const modulesUnder = new Map([[-1, []]]);  // children by parent; -1 holds the root
modules.forEach((m, i) => {
  if (!modulesUnder.has(m.parent)) modulesUnder.set(m.parent, []);
  modulesUnder.get(m.parent).push(i);
});
const childrenOf = i => modulesUnder.get(i) || [];
const moduleName = i => modules[i].name || shortClass(modules[i].class);
function modulePath(i) {
  const parts = [];
  for (; i >= 0 && modules[i].parent >= 0; i = modules[i].parent) parts.push(modules[i].name);
  return parts.reverse().join(".") || "(root)";
}

const ROW = 36, LEVELS = 12, NARROWEST = 1.5, GROUP = 12;
let shown = {of: -1, from: 0, to: 1};  // a run of siblings: children [from, to) of a module
const runOf = i => { const of = modules[i].parent, from = childrenOf(of).indexOf(i); return {of, from, to: from + 1}; };
const runAbove = run => run.to - run.from < childrenOf(run.of).length && run.to - run.from > 1 ? {of: run.of, from: 0, to: childrenOf(run.of).length} : run.of >= 0 ? runOf(run.of) : run;

// Lays out boxes {of, from, to, x, w, level}. Siblings too narrow to draw are put together, so that a layer of
// thousands of experts is a row of groups that open when selected.
function layOut(run, w) {
  const boxes = [];
  let deeper = false;
  const place = ({of, from, to}, x, room, level, least) => {
    const children = childrenOf(of), sum = children.slice(from, to).reduce((a, i) => a + modules[i].numel, 0), scale = room / Math.max(sum, least, 1);
    for (let k = from; k < to;) {
      let size = modules[children[k]].numel * scale, end = k + 1;
      if (size < NARROWEST) {
        while (end < to && size < GROUP && modules[children[end]].numel * scale < NARROWEST) size += modules[children[end++]].numel * scale;
      }
      if (size >= .7) {
        boxes.push({of, from: k, to: end, x, w: size, level});
        const inside = end === k + 1 && childrenOf(children[k]).length;
        if (inside && level + 1 < LEVELS) place({of: children[k], from: 0, to: inside}, x, size, level + 1, modules[children[k]].numel);
        else if (inside) deeper = true;
      }
      x += size;
      k = end;
    }
  };
  place(run, 0, w, 0, 0);
  return {boxes, deeper};
}

function drawBox(p, box, show) {
  const dark = document.documentElement.dataset.theme === "dark", y = box.level * ROW, w = Math.max(.5, box.w - 1);
  const members = childrenOf(box.of).slice(box.from, box.to), i = members[0], alone = members.length === 1, unit = p.unit_of[i];
  const hue = u => [28, 150, 280, 48, 340, 180, 95, 212][u % 8], isRoot = u => u === p.unit_of[0];
  const fill = u => isRoot(u) ? (dark ? "hsl(212 14% 30%)" : "hsl(212 18% 84%)") : `hsl(${hue(u)} ${dark ? "42% 38%" : "52% 74%"})`;
  const edge = u => isRoot(u) ? "var(--muted)" : `hsl(${hue(u)} ${dark ? "80% 70%" : "65% 38%"})`;
  const wrapped = members.filter(k => modules[k].parent < 0 || p.unit_of[k] !== p.unit_of[modules[k].parent]).length;
  const numel = members.reduce((a, k) => a + modules[k].numel, 0), unitName = u => p.unit_modules[u] || "(root)";
  const title = alone ? modulePath(i) : `${int(members.length)} modules, ${cut(moduleName(i), 30)} to ${cut(moduleName(members[members.length - 1]), 30)}, of ${cut(modulePath(box.of))}`;
  const about = alone ? [`${wrapped ? "unit of its own" : "in unit"} ${wrapped ? "" : cut(unitName(unit))}`.trim() + `, ${int(p.unit_numel[unit])} parameters managed`] : [`${int(wrapped)} of them are units of their own`];
  const room = Math.floor((box.w - 9) / 6.9), name = moduleName(i), labels = alone ? [`${name} · ${short(numel)}`, name, room > 4 && name.slice(0, room - 1) + "…"] : [`${int(members.length)} ×`];
  const caption = labels.find(t => t && t.length <= room);
  return s("g", {class: "pick", role: "button", tabindex: -1, "aria-label": `${cut(title)}, ${int(numel)} parameters, ${about}`, onclick: show,
    ...tipped(h("b", {}, named(title)), alone && named(modules[i].class), `${int(numel)} parameters`, about[0])},
    s("rect", {x: box.x, y, width: w, height: ROW - 2, rx: 2, fill: alone || members.every(k => p.unit_of[k] === unit) ? fill(unit) : "url(#mixed)"}),
    wrapped > 0 && s("rect", {x: box.x, y, width: w, height: 4, rx: 1, fill: alone ? edge(unit) : "var(--muted)"}),
    caption && text(box.x + 5, y + 23, caption, {class: "inside"}),
    s("rect", {x: box.x, y, width: w, height: ROW - 2, class: "halo", rx: 2}));
}

// Arrow keys walk through the boxes as they lie: left and right in a row, up to the parent, down to a child.
function walk(boxes, marks, zoom) {
  const nearest = (from, level, wanted) => boxes.findIndex(b => b.level === level && wanted(b, boxes[from]));
  const inside = (outer, inner) => outer.x <= inner.x + .01 && outer.x + outer.w >= inner.x + inner.w - .01;
  marks.forEach((mark, k) => mark.addEventListener("keydown", event => {
    const keys = {
      ArrowRight: () => boxes.findIndex((b, j) => j > k && b.level === boxes[k].level), ArrowLeft: () => boxes.findLastIndex((b, j) => j < k && b.level === boxes[k].level),
      ArrowUp: () => nearest(k, boxes[k].level - 1, (b, me) => inside(b, me)), ArrowDown: () => nearest(k, boxes[k].level + 1, (b, me) => inside(me, b)),
    };
    const act = {Enter: () => mark.dispatchEvent(new MouseEvent("click")), " ": () => mark.dispatchEvent(new MouseEvent("click")), Escape: () => zoom(runAbove(shown))};
    if (!keys[event.key] && !act[event.key]) return;
    event.preventDefault();
    if (act[event.key]) { act[event.key](); return; }
    const to = keys[event.key]();
    if (to >= 0) { mark.setAttribute("tabindex", -1); marks[to].setAttribute("tabindex", 0); marks[to].focus(); }
  }));
  if (marks.length) marks[0].setAttribute("tabindex", 0);
}

function crumbs(zoom) {
  const above = [];
  for (let i = shown.of; i >= 0; i = modules[i].parent) above.unshift(i);
  const children = childrenOf(shown.of), last = shown.to - shown.from === 1 ? moduleName(children[shown.from]) : `${moduleName(children[shown.from])} … ${moduleName(children[shown.to - 1])}`;
  return h("div", {class: "crumbs"}, h("span", {class: "muted"}, "Showing "), above.map(i => [h("button", {onclick: () => zoom(runOf(i))}, named(moduleName(i), 40)), " › "]), h("button", {disabled: true}, named(last, 60)));
}

function moduleMap(box, p) {
  const zoom = run => { shown = run; moduleMap(box, p); box.querySelector(".pick")?.focus({preventScroll: true}); };
  const w = width(box), {boxes, deeper} = layOut(shown, w);
  const marks = boxes.map(b => drawBox(p, b, () => zoom(b.level === 0 ? runAbove(shown) : {of: b.of, from: b.from, to: b.to})));
  walk(boxes, marks, zoom);
  const depth = boxes.reduce((a, b) => Math.max(a, b.level + 1), 0);
  box.replaceChildren(crumbs(zoom), marks.length > 0 ? chart(w, depth * ROW, "Module tree, width by parameters. Arrow keys move, Enter opens, Escape goes up.", marks) : h("p", {class: "muted"}, "Nothing here holds parameters."), deeper ? h("p", {class: "muted small"}, "Deeper levels open when a module is selected.") : "");
}

// The same in words, also for a result without modules.
function unitTable(p) {
  const groups = new Map();
  modules.forEach((m, i) => {
    if (m.parent >= 0 && p.unit_of[i] === p.unit_of[m.parent]) return;
    const g = groups.get(m.class) || {least: Infinity, most: 0, total: 0, first: i};
    const n = p.unit_numel[p.unit_of[i]];
    groups.set(m.class, {least: Math.min(g.least, n), most: Math.max(g.most, n), total: g.total + n, first: g.first});
  });
  const found = name => [...groups].find(([c]) => c === name || shortClass(c) === name)?.[1];
  const rows = Object.entries(p.units_by_class).sort((a, b) => b[1] - a[1]).map(([name, count]) => {
    const g = found(name);
    return h("tr", {}, h("th", {scope: "row"}, h("bdi", {title: name.slice(0, 2000)}, cut(shortClass(name)))), h("td", {class: "r"}, int(count)),
      h("td", {class: "r"}, g ? (g.least === g.most ? int(g.most) : `${int(g.least)} – ${int(g.most)}`) : ""), h("td", {class: "r"}, g ? int(g.total) : ""), h("td", {}, g ? named(modulePath(g.first)) : ""));
  });
  const empty = p.units - p.units_with_parameters;
  return [h("h3", {class: "apart"}, `${counted(p.units, "unit")} by class`), empty > 0 && h("p", {class: "muted"}, `${counted(empty, "unit")} without parameters: the units inside took everything.`),
    table([["Class"], ["Units", true], ["Parameters of one", true], ["Together", true], ["First"]], rows, {id: "unit-table"})];
}

section({
  id: "modules", nav: "Modules", title: "Modules and wrap boundaries",
  lead: "Width is parameters. One colour is one FSDP unit, grey is the root's; a bar along the top edge marks a wrapped module. Select a module to open it.",
  draw(box, p) {
    const map = h("figure", {id: "icicle"}), note = result.modules_note && h("p", {class: "muted"}, named(result.modules_note, 400));
    box.replaceChildren(...[map, note, unitTable(p)].flat(9).filter(Boolean));
    if (modules.length) moduleMap(map, p);
    else map.replaceChildren(note ? "" : h("p", {class: "muted"}, "This result holds no module tree."));
  },
});
