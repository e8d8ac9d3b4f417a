// The walkthrough: frames that the real engine made once, shown one by one. It needs no requests.

const $ = (id) => document.getElementById(id);
const PLAY_MS = 2600;

export class Walkthrough {
  /** `show(frames)`: draws the state that a list of frames leads to. */
  constructor(show) {
    this.show = show;
    this.at = 0;
    $("step-next").addEventListener("click", () => this.go(this.at + 1));
    $("step-back").addEventListener("click", () => this.go(this.at - 1));
    $("step-play").addEventListener("click", () => this.play(!this.playing));
    document.addEventListener("keydown", (event) => {
      if (event.target.matches("input, textarea, select")) return;
      if (event.key === "ArrowRight") this.go(this.at + 1);
      if (event.key === "ArrowLeft") this.go(this.at - 1);
    });
  }

  async start(at = 0) {
    this.frames = await (await fetch("walkthrough.json")).json();
    $("steps").hidden = false;
    this.go(at);
  }

  go(at) {
    if (at < 0 || at >= this.frames.length) return this.play(false);
    this.at = at;
    const { caption, prompt } = this.frames[at];
    $("step-caption").textContent = caption;
    $("step-place").textContent = `${at + 1} / ${this.frames.length}`;
    $("step-back").disabled = at === 0;
    $("step-next").disabled = at === this.frames.length - 1;
    $("step-prompt").replaceChildren(...prompt.words.map((word, index) => {
      const chip = Object.assign(document.createElement("span"), { textContent: word });
      if (index < prompt.cached) chip.className = "cached";
      else if (prompt.computed) chip.className = "computed";
      return chip;
    }));
    this.show(this.frames.slice(0, at + 1));
  }

  play(on) {
    clearInterval(this.playing);
    this.playing = on ? setInterval(() => this.go(this.at + 1), PLAY_MS) : null;
    $("step-play").textContent = on ? "Pause" : "Play";
    if (on && this.at === this.frames.length - 1) this.go(0);
  }
}
