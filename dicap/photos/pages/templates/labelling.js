const batch = JSON.parse($("batch").textContent);
const { items } = batch;
const KEYS = "1234567890abcdefghijklmopqrtvwxyz"; // n, s and u are commands
const SHOWN = 30; // chips before "show all"
const PREFIX = "dicap-labels:";
const place = PREFIX + batch.key;
const NOT_KEPT = "This browser keeps nothing for this page: download the labels before you close it.";

// What is kept: `at`, the photograph being looked at; `extra`, names of new classes; `decided`, for each photograph that was touched,
// [state, classes that are on, classes that were unknown and are answered, how many classes there were]; `past`, what each step back
// restores; `changed`, whether that is more than was downloaded, `downloads` times; and what a download is made of once another page is
// at this address, `page`.
// States: begun, done, skip.
const facts = {
  key: batch.key,
  ids: items.map((item) => item.id),
  classes: batch.classes,
  unknown: items.map((item) => item.unknown),
  photos: items.map((item) => item.photo),
  page: location.pathname,
};
let kept = { at: 0, extra: batch.extra, decided: {}, past: [], changed: false, downloads: 0, ...facts };
let all = false;

function load() {
  try {
    const found = JSON.parse(localStorage.getItem(place));
    if (found?.decided && found.at < items.length) kept = { ...kept, ...found, ...facts };
  } catch {
    warn(NOT_KEPT);
  }
}

function save(of = kept) {
  try {
    localStorage.setItem(PREFIX + of.key, JSON.stringify(of));
  } catch {
    warn(NOT_KEPT);
  }
}

function readAndDraw() {
  load();
  drawEarlier();
  draw(true);
}

function warn(text) {
  $("notice").textContent = text;
  $("notice").hidden = false;
}

const say = (text) => { $("said").textContent = text; };
const names = (of = kept) => [...of.classes, ...of.extra];
const nameOf = (c) => names()[c];
const stateOf = (i, of = kept) => of.decided[i]?.[0] ?? "open";
const onOf = (i) => kept.decided[i]?.[1] ?? items[i].on;
const answeredOf = (i, of = kept) => of.decided[i]?.[2] ?? [];
const chanceOf = (i, c) => items[i].chance[c];

// Classes of which nothing is known: neither on nor off. With those of a review come the new ones that a photograph was decided before.
function unknownOf(i, of = kept) {
  const answered = new Set(answeredOf(i, of));
  const later = stateOf(i, of) === "done" ? names(of).map((_, c) => c).slice(of.decided[i][3] ?? names(of).length) : [];
  return new Set([...of.unknown[i].filter((c) => !answered.has(c)), ...later]);
}

// ---- what is decided

function change(i, state, on, answered = answeredOf(i)) {
  kept.changed = true;
  kept.past.push([i, kept.decided[i] ?? null]);
  if (kept.past.length > 300) kept.past.shift();
  kept.decided[i] = [state, [...on].sort((a, b) => a - b), [...answered], names().length];
}

function toggle(c) {
  const i = kept.at;
  const on = new Set(onOf(i));
  const answered = new Set(answeredOf(i));
  const wasOn = on.delete(c);
  // A class that was unknown goes from unknown to on, to off, and back.
  if (items[i].unknown.includes(c) && !wasOn && answered.has(c)) {
    answered.delete(c);
  } else {
    if (!wasOn) on.add(c);
    if (items[i].unknown.includes(c)) answered.add(c);
  }
  change(i, stateOf(i) === "done" ? "done" : "begun", on, answered);
  save();
  say(`${nameOf(c)} ${on.has(c) ? "on" : unknownOf(i).has(c) ? "unknown" : "off"}`);
  draw();
}

function decide(state, on, answered = answeredOf(kept.at)) {
  const i = kept.at;
  change(i, state, on, answered);
  const next = following(i);
  if (next === null) {
    const { done, skip } = counts();
    say(`Every photograph is decided or skipped: ${done} labelled, ${skip} skipped.`);
    warn(`Every photograph is decided or skipped. Download the labels, then type: ${command()}`);
  } else {
    kept.at = next;
  }
  save();
  draw(true);
  if (next !== null) say(`Saved. Photograph ${next + 1} of ${items.length}.`);
}

const skip = () => decide("skip", onOf(kept.at)); // what is on stays on, for whoever comes back
const none = () => decide("done", [], items[kept.at].unknown);

function following(i) {
  const open = (k) => !["done", "skip"].includes(stateOf(k));
  for (let k = 1; k <= items.length; k += 1) {
    const next = (i + k) % items.length;
    if (open(next)) return next;
  }
  return null;
}

function undo() {
  const last = kept.past.pop();
  if (!last) return;
  kept.changed = true;
  const [i, before] = last;
  if (before === null) delete kept.decided[i];
  else kept.decided[i] = before;
  kept.at = i;
  $("notice").hidden = true;
  save();
  draw(true);
  say(`Undone. Photograph ${i + 1}.`);
}

function go(i) {
  if (i < 0 || i >= items.length || i === kept.at) return;
  kept.at = i;
  save();
  draw(true);
  say(`Photograph ${i + 1} of ${items.length}, ${stateText(i)}`);
}

function counts() {
  const found = { open: 0, begun: 0, done: 0, skip: 0 };
  items.forEach((_, i) => { found[stateOf(i)] += 1; });
  return found;
}

const stateText = (i) => ({ open: "not decided", begun: "not saved yet", done: "decided", skip: "skipped" })[stateOf(i)];

// ---- the file that import-labels reads

const cell = (text) => (/[",\r\n]|^\s|\s$/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);

// Of every class that was asked it says whether it is there or not: of one that only the data set knows, nothing. Marks of the
// photographs that were looked at let `import-labels` notice when one was exchanged.
function table(of) {
  const used = newNames(of);
  const written = names(of).map((name, c) => [name, c]).filter(([name, c]) => c < of.classes.length || used.includes(name));
  const marked = of.photos?.some((mark) => mark); // not before anything is a data set, nor in batches of earlier pages
  const rows = of.ids.map((id, i) => {
    const mark = marked ? [of.photos[i]] : [];
    if (stateOf(i, of) !== "done") return [id, "", "", ...mark];
    const [on, unknown] = [new Set(of.decided[i][1]), unknownOf(i, of)];
    const [there, absent] = [written.filter(([, c]) => on.has(c)), written.filter(([, c]) => !on.has(c) && !unknown.has(c))];
    return [id, listed(there, of), listed(absent, of) || "-", ...mark];
  });
  return `image,labels,absent${marked ? ",photo" : ""}\n${rows.map((row) => row.map(cell).join(",")).join("\n")}\n`;
}

// A new class that stands alone has a `;` behind it: so it is one name, though it look like several or like an empty cell.
const listed = (found, of) => found.map(([name]) => name).join(";") + (found.length === 1 && found[0][1] >= of.classes.length ? ";" : "");

const doneOf = (of) => of.ids.filter((_, i) => stateOf(i, of) === "done").length;

function newNames(of = kept) {
  const used = new Set(of.ids.flatMap((_, i) => (stateOf(i, of) === "done" ? of.decided[i][1] : [])));
  return of.extra.filter((_, k) => used.has(of.classes.length + k));
}

// Every batch and every download of it has a name of its own: a browser that finds a name taken chooses another, and an older list
// would be imported in its place.
function fileName(of) {
  const count = of.downloads + (of.changed ? 1 : 0);
  return `labels-${of.key.slice(0, 6)}${count > 1 ? `-${count}` : ""}.csv`;
}

function command(of = kept) {
  if (batch.folder) return `mv ${fileName(of)} ${batch.folder}/labels.csv && dicap-stage init-data ${batch.folder}`;
  return `dicap-stage import-labels ${fileName(of)}${newNames(of).length ? " --new-classes" : ""}`;
}

function give(of) {
  const address = URL.createObjectURL(new Blob([table(of)], { type: "text/csv" }));
  element("a", { href: address, download: fileName(of) }).click();
  setTimeout(() => URL.revokeObjectURL(address), 60000);
  of.downloads += of.changed ? 1 : 0;
  of.changed = false;
  save(of);
  const begun = of.ids.filter((_, i) => stateOf(i, of) === "begun").length;
  const unsaved = begun ? ` ${begun} begun but not saved: without labels.` : "";
  warn(`${fileName(of)}: ${doneOf(of)} of ${of.ids.length} photographs have labels.${unsaved} Next: ${command(of)}`);
}

// Batches that another page at this address was for, whose decisions were not all downloaded.
function earlier() {
  try {
    const others = Object.entries(localStorage).filter(([name]) => name.startsWith(PREFIX) && name !== place);
    return others.map(([, text]) => JSON.parse(text)).filter((of) => of?.page === location.pathname && of.changed && doneOf(of));
  } catch {
    return [];
  }
}

function drawEarlier() {
  const [found] = earlier();
  $("earlier").hidden = !found;
  if (found) $("earlier").textContent = `Download the ${doneOf(found)} of an earlier batch`;
}

// ---- what is seen

const images = new Map(); // photograph -> address; a few, so that stepping back and forth is quick

function pictureOf(i) {
  if (!images.has(i)) {
    images.set(i, JSON.parse($(`photograph-${i}`).textContent));
    if (images.size > 8) images.delete(images.keys().next().value);
  }
  return images.get(i);
}

const orders = new Map();

function orderOf(i) {
  if (!orders.has(i)) {
    const { odd } = items[i];
    const rest = items[i].chance.map((_, c) => c).filter((c) => !odd.includes(c));
    rest.sort((a, b) => chanceOf(i, b) - chanceOf(i, a) || a - b);
    orders.set(i, [...odd, ...rest]);
  }
  return [...kept.extra.map((_, k) => batch.classes.length + k), ...orders.get(i)];
}

function visible() {
  const i = kept.at;
  const typed = $("search").value.trim();
  const order = orderOf(i);
  if (typed) { // a name that was typed to its end comes before likelier ones that begin like it
    const wanted = fold(typed);
    const rank = (name) => [name === typed.normalize("NFC"), fold(name) === wanted, fold(name).startsWith(wanted), true].indexOf(true);
    const found = order.filter((c) => nameOf(c).includes(typed) || (wanted && fold(nameOf(c)).includes(wanted)));
    return found.sort((a, b) => rank(nameOf(a)) - rank(nameOf(b)));
  }
  if (all || order.length <= SHOWN + 5) return order;
  const on = new Set(onOf(i));
  return order.filter((c, k) => k < SHOWN || on.has(c));
}

function drawChips() {
  const i = kept.at;
  const on = new Set(onOf(i));
  const unknown = unknownOf(i);
  const odd = new Set(items[i].odd);
  const focused = document.activeElement?.dataset?.class;
  const shown = visible();
  const chips = shown.map((c, k) => {
    const key = KEYS[k];
    const chip = element("button", { type: "button", className: odd.has(c) ? "chip odd" : "chip" });
    chip.dataset.class = c;
    chip.setAttribute("aria-pressed", on.has(c) ? "true" : unknown.has(c) ? "mixed" : "false");
    if (key) {
      chip.append(element("kbd", { textContent: key }));
      chip.setAttribute("aria-keyshortcuts", key);
    }
    chip.append(element("bdi", { textContent: nameOf(c) }));
    const chance = chanceOf(i, c);
    chip.append(element("span", { className: "chance", textContent: chance === undefined ? "new" : percent(chance) }));
    chip.addEventListener("click", (event) => {
      toggle(c);
      if (event.detail) document.activeElement.blur(); // by mouse: the space bar goes on saving
    });
    return chip;
  });
  const hidden = orderOf(i).length - shown.length;
  const typed = $("search").value.trim();
  if (!typed && hidden > 0) {
    const more = element("button", { type: "button", className: "chip more", textContent: `Show all ${names().length}` });
    more.addEventListener("click", () => { all = true; draw(); $("chips").children[shown.length]?.focus(); });
    chips.push(more);
  }
  if (typed && !names().includes(typed.normalize("NFC")) && !/[;\p{Cc}]/u.test(typed) && !["-", "*"].includes(typed)) {
    const add = element("button", { type: "button", className: "chip more" }, "New class ", element("bdi", { textContent: typed }));
    add.addEventListener("click", () => {
      kept.extra.push(typed.normalize("NFC"));
      $("search").value = "";
      toggle(names().length - 1);
      if (counts().done) warn(`In the photographs decided before, ${nameOf(names().length - 1)} is unknown: look through them again, if you can.`);
    });
    chips.push(add);
  }
  $("chips").replaceChildren(...chips);
  if (focused !== undefined) $("chips").querySelector(`[data-class="${focused}"]`)?.focus();
}

function why(item) {
  const given = new Set(item.on);
  return item.odd.flatMap((c, k) => [
    k ? " " : "",
    given.has(c) ? "Labelled " : "Not labelled ",
    element("b", {}, element("bdi", { textContent: nameOf(c) })),
    given.has(c) ? `, found unlikely (${percent(item.chance[c])}).` : `, found likely (${percent(item.chance[c])}).`,
  ]);
}

function draw(moved = false) {
  const i = kept.at;
  const item = items[i];
  if (moved) {
    $("search").value = "";
    all = false;
    $("chips").scrollTop = 0;
  }
  const picture = pictureOf(i);
  if ($("photo").src !== picture) $("photo").src = picture;
  $("photo").alt = `Photograph ${i + 1}`;
  $("name").textContent = item.id;
  $("place").textContent = `${i + 1} / ${items.length}`;
  $("state").textContent = stateText(i);
  $("state").className = stateOf(i);
  $("why").replaceChildren(...why(item));
  $("previous").disabled = i === 0;
  $("next").disabled = i === items.length - 1;
  $("undo").disabled = !kept.past.length;
  $("command").textContent = command();
  const { done, skip } = counts();
  $("tally").textContent = `${done} of ${items.length} decided${skip ? `, ${skip} skipped` : ""}`;
  $("progress").setAttribute("aria-valuenow", done + skip);
  $("progress").firstElementChild.style.width = `${(100 * (done + skip)) / items.length}%`;
  drawChips();
  drawStrip(moved);
}

function makeStrip() {
  $("strip").replaceChildren(...items.map((item, i) => {
    const picture = element("img", { alt: "", src: item.thumbnail, width: 58, height: 58 });
    const button = element("button", { type: "button" }, picture);
    button.addEventListener("click", (event) => {
      go(i);
      if (event.detail) document.activeElement.blur();
    });
    return element("li", {}, button, element("p", { className: "written" }));
  }));
}

function drawStrip(moved) {
  items.forEach((item, i) => {
    const entry = $("strip").children[i];
    const [button, written] = entry.children;
    const labels = onOf(i).map(nameOf).join(", ") || "none";
    button.className = stateOf(i);
    button.setAttribute("aria-label", `Photograph ${i + 1}, ${stateText(i)}${stateOf(i) === "done" ? `: ${labels}` : ""}`);
    button.setAttribute("aria-current", i === kept.at);
    written.textContent = `${i + 1}. ${item.id}\n${stateOf(i) === "done" ? labels : stateText(i)}`;
  });
  const strip = $("strip").parentElement;
  const button = $("strip").children[kept.at].firstElementChild;
  if (moved) strip.scrollLeft = button.offsetLeft - strip.clientWidth / 2;
}

// ---- keys and buttons, and what was kept

function walk(step) {
  const chips = [...$("chips").children];
  const at = chips.indexOf(document.activeElement);
  if (at < 0) chips[step > 0 ? 0 : chips.length - 1]?.focus();
  else chips[at + step]?.focus();
}

function searchKey(event) {
  if (event.key === "Escape") {
    $("search").value = "";
    $("search").blur();
    drawChips();
  } else if (event.key === "Enter") {
    const found = $("search").value.trim() ? visible() : [];
    if (found.length) {
      $("search").value = "";
      toggle(found[0]);
    }
  } else if (event.key === "ArrowDown") {
    walk(1);
  } else {
    return;
  }
  event.preventDefault();
}

// The letter of the key, also where the keyboard is set to another script.
function keyOf(event) {
  if (/^Key[A-Z]$/.test(event.code) && !/^[a-z]$/i.test(event.key)) return event.code[3].toLowerCase();
  return event.key.length === 1 ? event.key.toLowerCase() : event.key;
}

const MOVES = ["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Tab"];
const COMMANDS = {
  ArrowLeft: () => go(kept.at - 1),
  ArrowRight: () => go(kept.at + 1),
  ArrowUp: () => walk(-1),
  ArrowDown: () => walk(1),
  Home: () => go(0),
  End: () => go(items.length - 1),
  " ": () => decide("done", onOf(kept.at)),
  Enter: () => decide("done", onOf(kept.at)),
  n: none,
  s: skip,
  u: undo,
  "/": () => $("search").focus(),
  "?": () => $("help").showModal(),
  Escape: () => document.activeElement.blur(),
};

// On a busy machine Chromium 156 forgot, 21 of 360 times, what a page keeps that looks into localStorage while it loads, and never
// after it had answered a question about locks. Where locks are not to be had there is nothing to wait for.
try { await navigator.locks?.query(); } catch { /* no answer here */ }

document.addEventListener("keydown", (event) => {
  if ($("help").open || event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  if (event.target === $("search")) {
    searchKey(event);
    return;
  }
  const key = keyOf(event);
  if (event.repeat && !MOVES.includes(key)) { // a key that is held decides one photograph
    event.preventDefault();
    return;
  }
  const pressing = event.target.closest?.("button") && (event.key === " " || event.key === "Enter");
  if (pressing) return; // what has the focus is pressed
  const chip = KEYS.includes(key) ? visible()[KEYS.indexOf(key)] : undefined;
  if (COMMANDS[key]) COMMANDS[key]();
  else if (chip !== undefined) toggle(chip);
  else return;
  event.preventDefault();
});

function onClick(id, act) {
  $(id).addEventListener("click", (event) => {
    act();
    if (event.detail) document.activeElement?.blur();
  });
}

onClick("previous", () => go(kept.at - 1));
onClick("next", () => go(kept.at + 1));
onClick("accept", () => decide("done", onOf(kept.at)));
onClick("none", none);
onClick("skip", skip);
onClick("undo", undo);
onClick("download", () => give(kept));
onClick("earlier", () => {
  give(earlier()[0]);
  drawEarlier();
});
$("help-open").addEventListener("click", () => $("help").showModal());
$("help-close").addEventListener("click", () => $("help").close());
$("search").addEventListener("input", drawChips);
window.addEventListener("storage", (event) => { // another tab
  if (event.key === place) readAndDraw();
  else drawEarlier();
});
window.addEventListener("pageshow", (event) => { // gone back to: meanwhile it may have been decided on elsewhere
  if (event.persisted) readAndDraw();
});

makeStrip();
readAndDraw();
