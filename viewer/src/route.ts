// Addresses: `#/`, `#/list?…` and `#/trajectory?id=…&turn=…&view=…`; each can be sent and opened again.

import type { Parameters } from "./types";

/** In place of a turn's number in an address: the first one that was edited. */
export const FIRST_EDIT = "edit";

export interface Route { page: string; parameters: Parameters }

export function current(): Route {
  const [page, query = ""] = location.hash.replace(/^#\/?/, "").split("?", 2);
  return { page, parameters: Object.fromEntries(new URLSearchParams(query)) };
}

export function address(page: string, parameters: Parameters = {}): string {
  const query = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value !== ""));
  return `#/${page}${query.size ? `?${query}` : ""}`;
}

export function go(page: string, parameters: Parameters = {}): void {
  location.hash = address(page, parameters);
}

/** Change the address without a step back to it. */
export function put(page: string, parameters: Parameters): void {
  history.replaceState(null, "", address(page, parameters));
}

/** `view` is "recovery" for the recovery view. */
export function trajectoryAddress(id: string, turn?: number, view = ""): string {
  return address("trajectory", { id, turn: turn === undefined ? "" : String(turn), view });
}
