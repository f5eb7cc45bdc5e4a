#!/bin/sh
# No init runs in a sandbox: installing a package must not try to start its service.
exit 101
