/** Server-sent events out of bytes, and what they say of a command, a run or a cell. */

import { BrokenAnswer, apiError } from "./errors.js";

export interface ServerEvent {
  name: string;
  data: string;
  id?: string;
}

/** A piece of output, exactly as the program wrote it. */
export interface Chunk {
  kind: "stdout" | "stderr";
  data: Uint8Array;
  text: string;
  /** Bytes lost just before this piece, because nobody read them in time. */
  dropped: number;
}

/** Another word of a stream, with what it says: `started`, `placed`, `result`, … */
export interface Said {
  kind: "said";
  name: string;
  value: Record<string, unknown>;
}

// A whole event: the results of a cell are the largest.
const MOST_EVENT = 64 * 1024 * 1024;

/** Yields the events that are complete. Throws BrokenAnswer for one that never is. */
export async function* serverEvents(pieces: AsyncIterable<Uint8Array>): AsyncGenerator<ServerEvent, void, undefined> {
  const text = new TextDecoder();
  // A line that is not complete, in pieces: a large one comes in thousands.
  let held: string[] = [];
  let event: ServerEvent = { name: "", data: "" };
  let lines: string[] = [];
  let size = 0;
  for await (const piece of pieces) {
    const came = text.decode(piece, { stream: true });
    held.push(came);
    size += piece.length;
    if (size > MOST_EVENT) throw new BrokenAnswer(`An event is longer than ${MOST_EVENT >> 20} MiB.`);
    if (!came.includes("\n")) continue;
    const complete = held.join("").split("\n");
    held = [complete.pop() ?? ""];
    for (const raw of complete) {
      const line = raw.endsWith("\r") ? raw.slice(0, -1) : raw;
      if (line !== "") {
        const colon = line.indexOf(":");
        const field = colon < 0 ? line : line.slice(0, colon);
        const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
        if (field === "event") event.name = value;
        else if (field === "data") lines.push(value);
        else if (field === "id") event.id = value;
        continue;
      }
      if (lines.length || event.name) yield { ...event, name: event.name || "message", data: lines.join("\n") };
      event = { name: "", data: "", ...(event.id === undefined ? {} : { id: event.id }) };
      lines = [];
      size = held[0]?.length ?? 0;
    }
  }
}

/** What an event of a stream says. Throws the problem of a broken one. */
export function pieceOf(event: ServerEvent): Chunk | Said {
  const value = parsed(event.data);
  if (event.name === "error") throw apiError(Number(value["status"] ?? 500), value, value["request_id"] as string);
  if (event.name !== "stdout" && event.name !== "stderr") return { kind: "said", name: event.name, value };
  const data = bytesOf(String(value["data"] ?? ""));
  // Each piece as text by itself: one that ends within a character has its rest in the next.
  return { kind: event.name, data, text: new TextDecoder().decode(data), dropped: Number(value["dropped"] ?? 0) };
}

function parsed(data: string): Record<string, unknown> {
  try {
    return JSON.parse(data) as Record<string, unknown>;
  } catch {
    throw new BrokenAnswer(`An event is no JSON: ${data.slice(0, 80)}`);
  }
}

/** Bytes of base 64. */
export function bytesOf(text: string): Uint8Array {
  return Uint8Array.from(atob(text), (one) => one.charCodeAt(0));
}

/** Base 64 of bytes, in steps that no call is too long for. */
export function base64Of(bytes: Uint8Array): string {
  let text = "";
  for (let at = 0; at < bytes.length; at += 0x8000) text += String.fromCharCode(...bytes.subarray(at, at + 0x8000));
  return btoa(text);
}
