// Text of tokens as people can read it: what can't be seen is marked, what is long is shortened.

const MARKS = { "\n": "↵", "\t": "⇥", "\r": "␍" };

/** Splits a text into pieces of {text, mark}: marks stand for line ends, tabs, control characters, and spaces at either end. */
export function visible(text) {
  const pieces = [];
  const push = (piece, mark) => {
    const last = pieces.at(-1);
    if (last && last.mark === mark) last.text += piece;
    else pieces.push({ text: piece, mark });
  };
  const start = text.length - text.trimStart().length;
  const end = text.trimEnd().length;
  [...text].reduce((at, char) => {
    if (MARKS[char]) push(MARKS[char], true);
    else if (char === " " && (at < start || at >= end)) push("·", true);
    else if (char < " " || char === "\u007f" || char === "\ufffd") push("▯", true);
    else push(char, false);
    return at + char.length;
  }, 0);
  return pieces;
}

/** At most `length` characters: the beginning and the end. */
export function shorten(text, length) {
  const chars = [...text];
  if (chars.length <= length) return text;
  const head = Math.ceil((length - 1) * 0.65);
  return `${chars.slice(0, head).join("")}…${chars.slice(chars.length - (length - 1 - head)).join("")}`;
}

/** Runs [first, last] of slots as "1–3, 8"; at most `most` runs, then how many more. */
export function ranges(runs, most = Infinity) {
  const shown = runs.slice(0, most).map(([first, last]) => (first === last ? `${first}` : `${first}–${last}`));
  return shown.join(", ") + (runs.length > most ? ` +${runs.length - most}` : "");
}

/** 1234 as "1,234", 1234567 as "1.23M". */
export function count(number) {
  if (number >= 1e6) return `${(number / 1e6).toPrecision(3)}M`;
  return Math.round(number).toLocaleString("en");
}

export function plural(number, word) {
  return `${count(number)} ${word}${number === 1 ? "" : "s"}`;
}
