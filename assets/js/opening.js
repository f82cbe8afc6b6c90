/* New run's outline stands while the page itself is being built; the studio's answer says when it is there. */

const AGAIN_MS = 500;

/** Waits for the page and goes there. A studio that does not answer is said, and asked again. */
async function stand() {
  const line = document.querySelector("[data-away]");
  for (;;) {
    try {
      const answer = await fetch("/studio/standing");
      if (answer.ok) return location.replace("/");
    } catch {
      line.textContent = line.dataset.away;
    }
    await new Promise((done) => setTimeout(done, AGAIN_MS));
  }
}

stand();
