/* The search among the advanced settings: what does not have all words in its label or its help steps aside, and so does
   a group's title that has nothing left below it. */

export function advanced() {
  document.addEventListener("input", (event) => {
    if (event.target.id === "advanced-search") sift(event.target);
  });
}

function sift(search) {
  const wanted = search.value.trim().toLowerCase().split(/\s+/).filter(Boolean);
  let found = 0;
  let group = null;
  const settle = () => group && group.title.toggleAttribute("data-unfound", group.shown === 0);
  for (const part of search.closest("#block-advanced").querySelectorAll(".group-title, .form > .block, .form > div > .block, #name, #auto-values dl.auto > div")) {
    if (part.matches(".group-title")) {
      settle();
      group = { title: part, shown: 0 };
      continue;
    }
    const fits = wanted.every((word) => part.textContent.toLowerCase().includes(word));
    part.toggleAttribute("data-unfound", !fits);
    if (!fits) continue;
    found += 1;
    if (group) group.shown += 1;
  }
  settle();
  const count = document.getElementById("advanced-count");
  const words = found ? "" : count.dataset.none;
  if (count.textContent !== words) count.textContent = words;
}
