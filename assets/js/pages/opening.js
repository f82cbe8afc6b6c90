/* New run's outline stands while the page itself is being built. The studio holds each question for half a second. */

const AGAIN_MS = 500;

/** Waits for the page and opens it; says where the studio does not answer. */
async function stand() {
  const line = document.querySelector("[data-away]");
  for (;;) {
    try {
      const answer = await fetch("/studio/standing");
      line.textContent = "";
      if ((await answer.json()).built) return location.replace("/");
    } catch {
      line.textContent = line.dataset.away;
      await new Promise((done) => setTimeout(done, AGAIN_MS));
    }
  }
}

stand();
