/* The frame of every page. It runs before anything is painted, so that a chosen theme never flashes; the menu and
   the theme's switches (here and on Settings) start once the header stands. Without a choice the system decides (see studio.css). */

(() => {
  const KEY = "luthier.theme";
  const root = document.documentElement;
  const chosen = () => {
    try {
      return localStorage.getItem(KEY) ?? "";
    } catch {
      return ""; // a browser that keeps nothing: the system decides
    }
  };
  const apply = (theme) => {
    if (theme === "light" || theme === "dark") root.dataset.theme = theme;
    else delete root.dataset.theme;
  };
  const shown = () => {
    for (const one of document.querySelectorAll("[data-theme-choice]")) one.checked = one.value === (root.dataset.theme ?? "");
  };
  const choose = (theme) => {
    apply(theme);
    shown();
    try {
      localStorage.setItem(KEY, theme);
    } catch {
      /* it holds for this page */
    }
  };
  apply(chosen());
  window.addEventListener("storage", (event) => {
    if (event.key !== KEY) return;
    apply(chosen());
    shown();
  });

  const begin = () => {
    const menu = document.querySelector(".more-menu");
    if (!menu) return;
    shown();
    for (const one of document.querySelectorAll("[data-theme-choice]")) one.addEventListener("change", () => choose(one.value));
    const leave = (event) => {
      if (menu.open && !menu.contains(event.target)) menu.open = false;
    };
    document.addEventListener("pointerdown", leave);
    document.addEventListener("focusin", leave);
    menu.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || !menu.open) return;
      menu.open = false;
      menu.querySelector("summary").focus();
    });
  };
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", begin);
  else begin();
})();
