// Written by scripts/generate-clients from the OpenAPI document. Do not edit.

import type { ToolEntry } from "../tools.js";

export const OPERATIONS: readonly ToolEntry[] = [
  {
    "name": "discover",
    "operation": "discover",
    "description": "Show what this is, where its documents and prices are, and how requests are signed.",
    "parameters": {
      "type": "object",
      "properties": {},
      "required": [],
      "additionalProperties": false
    }
  },
  {
    "name": "get_pricing",
    "operation": "getPricing",
    "description": "Show every price.",
    "parameters": {
      "type": "object",
      "properties": {},
      "required": [],
      "additionalProperties": false
    }
  },
  {
    "name": "show_me",
    "operation": "showMe",
    "description": "Show this account: balance, tier, scopes, limits.",
    "parameters": {
      "type": "object",
      "properties": {},
      "required": [],
      "additionalProperties": false
    }
  },
  {
    "name": "top_up",
    "operation": "topUp",
    "description": "Buy credit for an account; anyone may pay for any.",
    "parameters": {
      "type": "object",
      "properties": {
        "sats": {
          "type": "integer",
          "description": "How much credit to buy.",
          "minimum": 1.0,
          "maximum": 2100000000000000.0
        }
      },
      "required": [
        "sats"
      ],
      "additionalProperties": false
    }
  },
  {
    "name": "create_sandbox",
    "operation": "createSandbox",
    "description": "Create a sandbox.",
    "parameters": {
      "type": "object",
      "properties": {
        "name": {
          "type": "string",
          "description": "For people; no two of yours that live have the same."
        },
        "profile": {
          "type": "string",
          "description": "See GET /v1/profiles."
        },
        "image": {
          "type": "string",
          "description": "See GET /v1/images."
        },
        "network": {
          "type": "string",
          "description": "none, packages, open, or allow: and hosts. What the sandbox may reach: nothing; the registries of pip, npm, apt, cargo, Go, Maven and their kin; every public host; these hosts alone."
        },
        "ttl": {
          "type": "string",
          "description": "How long it lives once ready, as 30s, 15m, 4h or 2d."
        },
        "snapshot": {
          "type": "string",
          "description": "Begin as a copy of this snapshot, instead of an image; it says what is left out."
        },
        "env": {
          "type": "object",
          "description": "Environment variables.",
          "additionalProperties": {
            "type": "string"
          }
        }
      },
      "required": [],
      "additionalProperties": false
    }
  },
  {
    "name": "list_sandboxes",
    "operation": "listSandboxes",
    "description": "List sandboxes, newest first.",
    "parameters": {
      "type": "object",
      "properties": {
        "state": {
          "type": "string",
          "enum": [
            "requested",
            "provisioning",
            "ready",
            "active",
            "frozen",
            "stopped",
            "grace",
            "reaped",
            "expired",
            "failed",
            "destroying",
            "destroyed"
          ],
          "description": "Default: all but destroyed."
        },
        "limit": {
          "type": "integer",
          "description": "",
          "default": 50,
          "minimum": 1,
          "maximum": 500
        }
      },
      "required": [],
      "additionalProperties": false
    }
  },
  {
    "name": "get_sandbox",
    "operation": "getSandbox",
    "description": "Show a sandbox.",
    "parameters": {
      "type": "object",
      "properties": {
        "sandbox_id": {
          "type": "string",
          "description": "Id of a sandbox, or its beginning if no other id begins so; or the name of a sandbox of one's own."
        }
      },
      "required": [
        "sandbox_id"
      ],
      "additionalProperties": false
    }
  },
  {
    "name": "run_command",
    "operation": "runCommand",
    "description": "Run a command to its end.",
    "parameters": {
      "type": "object",
      "properties": {
        "sandbox_id": {
          "type": "string",
          "description": "Id of a sandbox, or its beginning if no other id begins so; or the name of a sandbox of one's own."
        },
        "command": {
          "type": "string",
          "description": "Run by bash (sh if there is none), not as a login shell."
        },
        "cwd": {
          "type": "string",
          "description": "Default: /workspace if there is one, else /."
        },
        "env": {
          "type": "object",
          "description": "Environment variables.",
          "additionalProperties": {
            "type": "string"
          }
        },
        "stdin": {
          "type": "string",
          "description": "Given to the command, then closed."
        },
        "timeout_s": {
          "type": "number",
          "description": "After this, everything the command started is killed and `timed_out` is true.",
          "default": 600.0,
          "maximum": 86400.0
        }
      },
      "required": [
        "sandbox_id"
      ],
      "additionalProperties": false
    }
  },
  {
    "name": "execute_code",
    "operation": "executeCode",
    "description": "Run code in a sandbox of its own, which is deleted afterwards.",
    "parameters": {
      "type": "object",
      "properties": {
        "code": {
          "type": "string"
        },
        "language": {
          "type": "string",
          "description": "Name, alias or file extension (GET /v1/languages). Default: what the code's first line says (`#!/usr/bin/env python3`)."
        },
        "stdin": {
          "type": "string",
          "description": "Given to the program, then closed. Without it the program reads an end at once."
        }
      },
      "required": [
        "code"
      ],
      "additionalProperties": false
    }
  },
  {
    "name": "list_files",
    "operation": "listFiles",
    "description": "List a folder, by path.",
    "parameters": {
      "type": "object",
      "properties": {
        "sandbox_id": {
          "type": "string",
          "description": "Id of a sandbox, or its beginning if no other id begins so; or the name of a sandbox of one's own."
        },
        "path": {
          "type": "string",
          "description": "Absolute path; any bytes but NUL, percent-encoded."
        },
        "depth": {
          "type": "integer",
          "description": "1: the folder itself.",
          "default": 1,
          "minimum": 1,
          "maximum": 64
        }
      },
      "required": [
        "sandbox_id",
        "path"
      ],
      "additionalProperties": false
    }
  },
  {
    "name": "extend_ttl",
    "operation": "extendTtl",
    "description": "Give a sandbox more time.",
    "parameters": {
      "type": "object",
      "properties": {
        "sandbox_id": {
          "type": "string",
          "description": "Id of a sandbox, or its beginning if no other id begins so; or the name of a sandbox of one's own."
        },
        "duration": {
          "type": "string",
          "description": "Added to the current expiry; the whole life stays within the profile's maximum."
        }
      },
      "required": [
        "sandbox_id",
        "duration"
      ],
      "additionalProperties": false
    }
  },
  {
    "name": "take_snapshot",
    "operation": "takeSnapshot",
    "description": "Take a snapshot of a sandbox's disk, or of what runs too; whatever runs goes on.",
    "parameters": {
      "type": "object",
      "properties": {
        "sandbox_id": {
          "type": "string",
          "description": "Id of a sandbox, or its beginning if no other id begins so; or the name of a sandbox of one's own."
        },
        "name": {
          "type": "string",
          "description": "For people; needs not be unique."
        }
      },
      "required": [
        "sandbox_id"
      ],
      "additionalProperties": false
    }
  },
  {
    "name": "list_snapshots",
    "operation": "listSnapshots",
    "description": "List snapshots, newest first.",
    "parameters": {
      "type": "object",
      "properties": {
        "limit": {
          "type": "integer",
          "description": "",
          "default": 50,
          "minimum": 1,
          "maximum": 500
        }
      },
      "required": [],
      "additionalProperties": false
    }
  },
  {
    "name": "destroy_sandbox",
    "operation": "destroySandbox",
    "description": "Delete a sandbox; deleted already is success.",
    "parameters": {
      "type": "object",
      "properties": {
        "sandbox_id": {
          "type": "string",
          "description": "Id of a sandbox, or its beginning if no other id begins so; or the name of a sandbox of one's own."
        }
      },
      "required": [
        "sandbox_id"
      ],
      "additionalProperties": false
    }
  }
];
