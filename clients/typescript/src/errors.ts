/** What can go wrong for a client. Each says whose fault it is and what to do now. */

export interface Told {
  code?: string;
  fault?: string;
  nextStep?: string;
  cause?: unknown;
}

/** Something went wrong on the way to the platform. */
export class SandboxerError extends Error {
  readonly code: string;
  /** Whose fault it is: `caller`, `platform` or `network`. */
  readonly fault: string;
  readonly nextStep: string;

  constructor(message: string, told: Told = {}) {
    super(message, told.cause === undefined ? undefined : { cause: told.cause });
    this.name = new.target.name;
    this.code = told.code ?? "sdk_error";
    this.fault = told.fault ?? "caller";
    this.nextStep = told.nextStep ?? "Look at the message.";
  }
}

/** No answer: not running, wrong address, connection lost, time over. */
export class Unreachable extends SandboxerError {
  constructor(message: string, cause?: unknown) {
    const nextStep = "Start the platform (`sandboxer up -d`), or name another address: SANDBOXER_URL.";
    super(message, { code: "unreachable", fault: "network", nextStep, cause });
  }
}

/** No key was given and none was found. */
export class MissingCredentials extends SandboxerError {
  constructor(message: string, nextStep?: string) {
    super(message, {
      code: "missing_credentials",
      nextStep: nextStep ?? "Set SANDBOXER_PUBLIC_KEY and SANDBOXER_SECRET_KEY, or SANDBOXER_API_KEY, or give a wallet.",
    });
  }
}

/** The server said something that this client does not understand. */
export class BrokenAnswer extends SandboxerError {
  constructor(message: string) {
    super(message, {
      code: "broken_answer",
      fault: "platform",
      nextStep: "Check that the address is a sandboxer server of a matching version.",
    });
  }
}

/** The server answered with a problem (RFC 9457). */
export class ApiError extends SandboxerError {
  readonly status: number;
  readonly problem: Readonly<Record<string, unknown>>;
  readonly requestId: string | undefined;

  constructor(status: number, problem: Readonly<Record<string, unknown>>, requestId?: string) {
    super(String(problem["detail"] ?? problem["title"] ?? `HTTP ${status}`), {
      code: String(problem["code"] ?? "api_error"),
      fault: String(problem["fault"] ?? (status < 500 ? "caller" : "platform")),
      nextStep: String(problem["next_step"] ?? "Look at the message."),
    });
    this.status = status;
    this.problem = problem;
    this.requestId = requestId;
  }

  /** The finer cause, where the code alone is too coarse (`clock_skew`, `replayed`, …). */
  get reason(): string | undefined {
    const found = this.fact("reason");
    return found === undefined ? undefined : String(found);
  }

  /** A fact of the problem, wherever the server put it. */
  fact(name: string): unknown {
    const facts = this.problem["facts"];
    const held = typeof facts === "object" && facts !== null ? (facts as Record<string, unknown>) : {};
    return name in held ? held[name] : this.problem[name];
  }
}

/** The signature or the key was not accepted (401). */
export class AuthenticationFailed extends ApiError {}
/** It costs what this says, and nobody paid (402). */
export class PaymentRequired extends ApiError {
  /** The offers, as x402 writes them. */
  get offers(): ReadonlyArray<Readonly<Record<string, unknown>>> {
    const found = this.fact("accepts");
    return Array.isArray(found) ? found : [];
  }
}
/** The caller may change something and try again (4xx). */
export class Refused extends ApiError {}
/** No such thing, or not yours (404). */
export class NotFound extends Refused {}
/** The present state does not allow it (409). */
export class Conflict extends Refused {}
/** A field is wrong (400, 422). */
export class InvalidRequest extends Refused {}
/** The platform cannot do it right now (429, 5xx). */
export class Unavailable extends ApiError {}

const BY_STATUS: Readonly<Record<number, typeof ApiError>> = {
  400: InvalidRequest,
  401: AuthenticationFailed,
  402: PaymentRequired,
  404: NotFound,
  409: Conflict,
  422: InvalidRequest,
  429: Unavailable,
};

/** Returns the typed error of a problem document. */
export function apiError(status: number, problem: Readonly<Record<string, unknown>>, requestId?: string): ApiError {
  const Kind = BY_STATUS[status] ?? (status < 500 ? Refused : Unavailable);
  return new Kind(status, problem, requestId);
}
