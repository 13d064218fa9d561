const facts = JSON.parse($("facts").textContent);
const names = JSON.parse($("names").textContent);
const WORDS = ["no", "yes", "unsure"];
const MARKS = ["✕", "✓", "?"];
const GAP_ROWS = 2; // rows drawn above and below the window
const PRINTED = 200;

let printing = false;

const columns = new Map(); // class -> Uint16Array, decoded when it is asked for

function columnOf(c) {
  if (!columns.has(c)) {
    const text = atob(JSON.parse($(`column-${c}`).textContent));
    const bytes = new Uint8Array(text.length);
    for (let i = 0; i < text.length; i += 1) bytes[i] = text.charCodeAt(i);
    const view = new DataView(bytes.buffer);
    const column = new Uint16Array(names.length);
    for (let i = 0; i < column.length; i += 1) column[i] = view.getUint16(2 * i, true);
    columns.set(c, column);
  }
  return columns.get(c);
}

const chanceOf = (entry) => facts.chances[entry & facts.levels];
const decisionOf = (entry) => entry >> 14;

// What the truth makes of an answer, where it came with the predictions.
function outcomeOf(i, c) {
  if (!facts.truth) return "";
  const [there, unknown] = facts.truth[i];
  if (unknown.includes(c)) return "unknown";
  const yes = decisionOf(columnOf(c)[i]) === 1;
  if (there.includes(c)) return yes ? "right" : "missed";
  return yes ? "wrong" : "not there";
}
const outcomeSaid = (i, c) => element("span", { className: `outcome ${outcomeOf(i, c)}`, textContent: outcomeOf(i, c) });

const thumbnailOf = (i) => `thumbs/${i}.jpg`;

// The place of each photograph in the order of names, in which a list of files need not be.
const places = new Uint32Array(names.length);
names.map((name, i) => [name, i]).sort(([a], [b]) => (a < b ? -1 : Number(a > b))).forEach(([, i], place) => { places[i] = place; });

// ---- what is shown

let shown = new Uint32Array(0); // numbers of the photographs, in order
let active = 0; // place in `shown` of the photograph that the keyboard is at

const wantedClass = () => Number($("class").value);
const filters = [...document.querySelectorAll(".filter")];

const least = () => Number($("least").value) / 100; // chance below which nothing is shown

// What a yes from this chance on would be worth, by the chances themselves: how many are right, and how many of all are found.
function worth() {
  if (!facts.measured || !least()) return "";
  const chances = Array.from(columnOf(wantedClass()), chanceOf);
  const above = chances.filter((chance) => chance >= least());
  const sum = (values) => values.reduce((total, value) => total + value, 0);
  if (!above.length) return "";
  return `; of all ${above.length.toLocaleString("en")} from ${percent(least())} on about ${percent(sum(above) / above.length)} show it, which is about ${percent(sum(above) / sum(chances))} of those that do`;
}

function choose() {
  const column = columnOf(wantedClass());
  const wanted = new Set(filters.filter((button) => button.getAttribute("aria-pressed") === "true").map((b) => Number(b.dataset.decision)));
  const part = fold($("search").value.trim());
  const answers = $("answers")?.value;
  const isWanted = (i) => (answers ? outcomeOf(i, wantedClass()) === answers : wanted.has(decisionOf(column[i])));
  const found = [];
  for (let i = 0; i < names.length; i += 1) {
    if (chanceOf(column[i]) >= least() && isWanted(i) && (!part || fold(names[i]).includes(part))) found.push(i);
  }
  const level = (i) => column[i] & facts.levels;
  const openness = (i) => Math.abs(chanceOf(column[i]) - 0.5);
  const orders = {
    likely: (a, b) => level(b) - level(a) || a - b,
    unlikely: (a, b) => level(a) - level(b) || a - b,
    open: (a, b) => openness(a) - openness(b) || a - b,
    name: (a, b) => places[a] - places[b],
  };
  shown = Uint32Array.from(found.sort(orders[$("sort").value]));
  active = 0;
  const counts = facts.counts[wantedClass()];
  filters.forEach((button, k) => { button.querySelector("span").textContent = counts[k].toLocaleString("en"); });
  note();
  window.scrollTo(0, 0);
  layout();
}

function note() {
  const printed = printing && shown.length > PRINTED ? `, the first ${PRINTED} of them printed` : "";
  $("note").textContent = shown.length
    ? `${facts.classes[wantedClass()]}: ${shown.length.toLocaleString("en")} shown${printed}${worth()}`
    : "Nothing to show: switch on yes, unsure or no, lower the chance, or take another class.";
  $("least-said").textContent = percent(least());
}

// ---- only the tiles in the window exist

let columnsShown = 1;
let tileWidth = 0;
let tileHeight = 0;
const tiles = new Map(); // place in `shown` -> li

function layout() {
  const width = $("grid").clientWidth;
  columnsShown = Math.max(2, Math.floor(width / (width < 600 ? 120 : 210)));
  tileWidth = width / columnsShown;
  tileHeight = Math.round(tileWidth * 0.75) + 38;
  $("grid").style.height = `${Math.ceil(shown.length / columnsShown) * tileHeight}px`;
  clear();
  draw();
}

function clear() {
  tiles.forEach((tile) => tile.remove());
  tiles.clear();
}

function inWindow() {
  if (printing) return [0, Math.min(PRINTED, shown.length)];
  const top = -$("grid").getBoundingClientRect().top;
  const first = Math.max(0, Math.floor(top / tileHeight) - GAP_ROWS);
  const last = Math.ceil((top + window.innerHeight) / tileHeight) + GAP_ROWS;
  return [Math.min(first * columnsShown, shown.length), Math.max(0, Math.min(last * columnsShown, shown.length))];
}

function draw() {
  const [from, to] = inWindow();
  const focused = $("grid").contains(document.activeElement);
  if (!focused && (active < from || active >= to)) active = Math.min(from + GAP_ROWS * columnsShown, Math.max(0, shown.length - 1));
  tiles.forEach((tile, k) => {
    if ((k < from || k >= to) && !(focused && k === active)) {
      tile.remove();
      tiles.delete(k);
    }
  });
  const made = [];
  for (let k = from; k < to; k += 1) if (!tiles.has(k)) made.push(tile(k));
  $("grid").append(...made);
  tiles.forEach((li, k) => { li.firstElementChild.tabIndex = k === active ? 0 : -1; });
  fillSoon(from);
}

// Who drags the scroll bar passes thousands of photographs: those are loaded where the dragging stops.
let filling = 0;
let before = 0;

function fillSoon(from) {
  const far = Math.abs(from - before) > 4 * columnsShown && !printing;
  before = from;
  clearTimeout(filling);
  if (far) filling = setTimeout(fill, 80);
  else fill();
}

function fill() {
  tiles.forEach((li, k) => {
    const picture = li.firstElementChild.firstElementChild;
    if (!picture.hasAttribute("src")) picture.src = thumbnailOf(shown[k]);
  });
}

function tile(k) {
  const i = shown[k];
  const entry = columnOf(wantedClass())[i];
  const word = WORDS[decisionOf(entry)];
  const picture = element("img", { alt: "", decoding: "async", draggable: false });
  const line = element(
    "span", { className: "line" },
    element("span", { className: `mark ${word}`, textContent: `${MARKS[decisionOf(entry)]} ${percent(chanceOf(entry))}` }),
    outcomeSaid(i, wantedClass()),
    element("bdi", { textContent: names[i], title: names[i] }),
  );
  const button = element("button", { type: "button", className: "tile" }, picture, line);
  button.setAttribute("aria-label", [word, percent(chanceOf(entry)), outcomeOf(i, wantedClass()), names[i]].filter(Boolean).join(", "));
  button.addEventListener("click", () => enlarge(k));
  const li = element("li", {}, button);
  li.setAttribute("aria-setsize", shown.length);
  li.setAttribute("aria-posinset", k + 1);
  li.style.width = `${tileWidth}px`;
  li.style.height = `${tileHeight}px`;
  li.style.transform = `translate(${(k % columnsShown) * tileWidth}px, ${Math.floor(k / columnsShown) * tileHeight}px)`;
  tiles.set(k, li);
  return li;
}

function focusOn(k) {
  active = Math.max(0, Math.min(shown.length - 1, k));
  const bar = document.querySelector(".bar").offsetHeight;
  const top = $("grid").getBoundingClientRect().top + Math.floor(active / columnsShown) * tileHeight;
  if (top < bar) window.scrollBy(0, top - bar - 8);
  else if (top + tileHeight > window.innerHeight) window.scrollBy(0, top + tileHeight - window.innerHeight + 8);
  draw();
  tiles.get(active)?.firstElementChild.focus({ preventScroll: true });
}

// ---- the large picture

function enlarge(k) {
  active = k;
  const i = shown[k];
  $("large-note").textContent = "";
  $("large-picture").onerror = () => {
    $("large-picture").onerror = null;
    $("large-picture").src = thumbnailOf(i);
    $("large-note").textContent = "The photograph was moved, or is of a kind that browsers do not show: this is its thumbnail.";
  };
  $("large-picture").src = facts.files[i] ?? thumbnailOf(i);
  $("large-picture").alt = `Photograph ${k + 1} of ${shown.length}`;
  $("large-name").replaceChildren(element("bdi", { textContent: names[i] }));
  $("previous").disabled = k === 0;
  $("next").disabled = k === shown.length - 1;
  const entries = facts.classes.map((name, c) => [name, columnOf(c)[i], c]).sort((a, b) => (b[1] & facts.levels) - (a[1] & facts.levels));
  const listed = entries.filter(([, entry, c], place) => place < 15 || decisionOf(entry) === 1 || outcomeOf(i, c) === "missed");
  $("large-classes").replaceChildren(...listed.map(([name, entry, c]) => {
    const word = WORDS[decisionOf(entry)];
    const mark = element("span", { className: `mark ${word}`, textContent: MARKS[decisionOf(entry)] });
    mark.setAttribute("role", "img");
    mark.setAttribute("aria-label", word);
    return element("li", {}, mark, element("bdi", { textContent: name }), outcomeSaid(i, c), element("span", { textContent: percent(chanceOf(entry)) }));
  }));
  if (!$("large").open) $("large").showModal();
}

const step = (by) => { if (active + by >= 0 && active + by < shown.length) enlarge(active + by); };

// ---- keys and buttons

function press(button) {
  button.setAttribute("aria-pressed", button.getAttribute("aria-pressed") !== "true");
  choose();
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const large = $("large").open;
  if (["INPUT", "SELECT"].includes(event.target.tagName)) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const onTile = $("grid").contains(document.activeElement);
  const moves = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columnsShown, ArrowDown: columnsShown };
  if (large && (event.key === "ArrowLeft" || event.key === "ArrowRight")) step(moves[event.key]);
  else if (large) return;
  else if (onTile && event.key in moves) focusOn(active + moves[event.key]);
  else if (onTile && event.key === "Home") focusOn(0);
  else if (onTile && event.key === "End") focusOn(shown.length - 1);
  else if (!onTile && ["ArrowRight", "ArrowDown"].includes(event.key)) focusOn(active);
  else if ("yun".includes(event.key) && event.key.length === 1) press(filters["yun".indexOf(event.key)]);
  else if (event.key === "/") $("search").focus();
  else return;
  event.preventDefault();
});

filters.forEach((button) => button.addEventListener("click", () => press(button)));
$("class").addEventListener("change", choose);
$("sort").addEventListener("change", choose);
$("answers")?.addEventListener("change", choose);
$("least").addEventListener("input", choose);
let waiting = 0;
$("search").addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(choose, 120); });
$("previous").addEventListener("click", () => step(-1));
$("next").addEventListener("click", () => step(1));
$("close").addEventListener("click", () => $("large").close());
$("large").addEventListener("close", () => focusOn(active));

let due = false;
window.addEventListener("scroll", () => {
  if (due) return;
  due = true;
  requestAnimationFrame(() => { due = false; draw(); });
}, { passive: true });
let width = 0;
new ResizeObserver(() => {
  if ($("grid").clientWidth === width || printing) return;
  width = $("grid").clientWidth;
  const at = inWindow()[0];
  layout();
  if (at) window.scrollTo(0, Math.floor(at / columnsShown) * tileHeight);
}).observe(document.body);
window.addEventListener("beforeprint", () => { printing = true; note(); clear(); draw(); });
window.addEventListener("afterprint", () => { printing = false; note(); layout(); });

$("class").replaceChildren(...facts.classes.map((name, c) => element("option", { value: c, textContent: `${name} (${facts.counts[c][0].toLocaleString("en")})` })));
const most = facts.counts.reduce((best, [yes], c) => (yes > facts.counts[best][0] ? c : best), 0);
$("class").value = most;
choose();
