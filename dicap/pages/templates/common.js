const $ = (id) => document.getElementById(id);

function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

function percent(x) {
  if (x >= 0.995 && x < 1) return ">99 %";
  if (x > 0 && x < 0.005) return "<1 %";
  return `${Math.round(100 * x)} %`;
}

// For searching: without accents and capitals.
const fold = (text) => text.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase();

