// A click on a figure shows it as large as the window allows; escape or another click puts it back.

const dialog = document.createElement("dialog");
dialog.className = "enlarged";
dialog.setAttribute("aria-label", "Enlarged");
const back = document.createElement("button");
back.type = "button";
back.className = "button";
back.textContent = "Close";
document.body.append(dialog);
let place = null; // where the figure came from

function putBack() {
  if (!place) return;
  const figure = dialog.firstElementChild;
  place.replaceWith(figure);
  place = null;
  figure.closest(".enlarge")?.focus();
}

dialog.addEventListener("close", putBack);
dialog.addEventListener("click", () => dialog.close());

document.querySelectorAll("img.figure").forEach((figure) => {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "enlarge";
  button.title = "Enlarge";
  button.setAttribute("aria-label", `Enlarge: ${figure.alt}`);
  figure.replaceWith(button);
  button.append(figure);
  button.addEventListener("click", () => {
    place = document.createElement("span");
    figure.replaceWith(place);
    dialog.replaceChildren(figure, back);
    dialog.showModal();
  });
});
