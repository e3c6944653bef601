#!/usr/bin/env bash
# The matrix of docs/use/frameworks.md, where scripts/frameworks has made its environment.
source "$(dirname "$0")/case.sh"
exec "$SOURCE_DIR/scripts/frameworks" --no-setup --build "$BUILD_DIR"
