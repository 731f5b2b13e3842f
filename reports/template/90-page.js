// The frame: sections, selection, colour theme, printing. Runs last.

function drawAll() {
  for (const part of sections) if (current || part.always) part.draw(part.box, current);
}

// Shows a plan everywhere. `key` is the kind of mark it was chosen with; the focus stays there.
function select(p, key) {
  current = p;
  drawAll();
  if (key) document.querySelector(`[data-key="${key}-${plans.indexOf(p)}"]`)?.focus({preventScroll: true});
  byId("away").hidden = p === home;
  byId("away-text").replaceChildren("You are looking at “", named(p.label), recommended ? "”, not at the recommended plan." : "”, not at the plan that comes nearest.");
  byId("status").textContent = "Showing " + spoken(p);
  history.replaceState(null, "", p === home ? "#" : "#plan=" + plans.indexOf(p));
}

function build() {
  const title = `${cut(result.model.name, 60)} on ${int(cluster.gpus)} × ${cut(cluster.gpu, 40)}`;
  document.title = "fsdplan · " + title;
  byId("title").replaceChildren("fsdplan · ", h("bdi", {}, title));
  for (const part of sections.filter(x => current || x.always)) {
    part.box = h("div", {class: "body"});
    byId("sections").append(h("section", {id: part.id, "aria-labelledby": "h-" + part.id}, part.title && h("h2", {id: "h-" + part.id}, part.title), part.lead && h("p", {class: "lead"}, part.lead), part.box));
    byId("nav").append(h("a", {href: "#" + part.id}, part.nav));
  }
  byId("away-back").textContent = recommended ? "Back to the recommended plan" : "Back to the nearest plan";
  byId("away-back").onclick = () => select(home);
}

const prefersDark = matchMedia("(prefers-color-scheme: dark)");
let theme = "Auto";
function applyTheme() {
  document.documentElement.dataset.theme = theme === "Auto" ? (prefersDark.matches ? "dark" : "light") : theme.toLowerCase();
  byId("theme").textContent = theme;
  byId("theme").setAttribute("aria-label", `Colour theme: ${theme}`);
  drawAll();
}
byId("theme").onclick = () => { theme = {Auto: "Light", Light: "Dark", Dark: "Auto"}[theme]; applyTheme(); };
prefersDark.addEventListener("change", applyTheme);

// Paper is white and has a width of its own.
addEventListener("beforeprint", () => { paper = 690; document.documentElement.dataset.theme = "light"; drawAll(); });
addEventListener("afterprint", () => { paper = 0; applyTheme(); });
let waiting;
addEventListener("resize", () => { clearTimeout(waiting); waiting = setTimeout(() => { if (!paper) drawAll(); }, 120); });

build();
applyTheme();
const asked = plans[Number(/plan=(\d+)$/.exec(location.hash)?.[1] ?? -1)];
if (asked) select(asked);
document.documentElement.dataset.ready = "1";  // for tests: everything has been drawn
