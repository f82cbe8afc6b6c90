/* The search among the advanced settings hides what does not have all words in its label or help, and the titles of
   groups with nothing left. */

export function advanced() {
  document.addEventListener("input", (event) => {
    if (event.target.id === "advanced-search") filter(event.target);
  });
}

function filter(search) {
  const wanted = search.value.trim().toLowerCase().split(/\s+/).filter(Boolean);
  let matches = 0;
  let group = null;
  const settle = () => group && group.title.toggleAttribute("data-unmatched", group.shown === 0);
  for (const part of search.closest("#block-advanced").querySelectorAll(".group-title, .form > .block, .form > div > .block, #name, #auto-values dl.auto > div")) {
    if (part.matches(".group-title")) {
      settle();
      group = { title: part, shown: 0 };
      continue;
    }
    const fits = wanted.every((word) => part.textContent.toLowerCase().includes(word));
    part.toggleAttribute("data-unmatched", !fits);
    if (!fits) continue;
    matches += 1;
    if (group) group.shown += 1;
  }
  settle();
  const count = document.getElementById("advanced-count");
  const words = matches ? "" : count.dataset.none;
  if (count.textContent !== words) count.textContent = words;
}
