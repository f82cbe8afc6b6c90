/* A question before something that cannot be taken back: the page's own <dialog>, answered by a button's value. */

/** Opens a dialog and gives the value of the button that closed it; "" for Escape or the way back. */
export function choose(dialog) {
  return new Promise((resolve) => {
    dialog.returnValue = "";
    dialog.addEventListener("close", () => resolve(dialog.returnValue), { once: true });
    dialog.showModal();
  });
}
