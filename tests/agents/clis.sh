# shellcheck shell=bash
# The agent CLIs and the fake model server, from npm, and its start. Sourced.
# They are installed once, below ${COURIER_CACHE:-~/.cache/courier-tests}.

cache=${COURIER_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/courier-tests}/agents

# package CLI: what npm installs for it
package() {
    case $1 in
    claude) echo @anthropic-ai/claude-code@2.1.197 ;;
    codex) echo @openai/codex@0.171.0 ;;
    opencode) echo opencode-ai@1.18.33 ;;
    pi) echo @mariozechner/pi-coding-agent@0.73.1 ;;
    llmock) echo @copilotkit/aimock ;;
    esac
}

# install_clis CLI...: says why if it can't
install_clis() {
    local cli p want=()
    if ! command -v npm >/dev/null || ! command -v node >/dev/null; then
        echo "skipped: npm or node is missing"
        return 1
    fi
    for cli in "$@" llmock; do
        p=$(package "$cli")
        [ -n "$p" ] || { echo "no such CLI: $cli"; return 1; }
        [ -x "$cache/node_modules/.bin/$cli" ] &&
            grep -qxF "$p" "$cache/have" 2>/dev/null || want+=("$p")
    done
    [ ${#want[@]} = 0 ] && return
    mkdir -p "$cache"
    echo "installing ${want[*]} into $cache"
    if ! npm install --silent --no-audit --no-fund --prefix "$cache" \
        "${want[@]}" >"$cache/install.log" 2>&1; then
        echo "skipped: npm could not install them, see $cache/install.log"
        return 1
    fi
    printf '%s\n' "${want[@]}" >>"$cache/have"
}

# start_model DIR: the server with the fixtures of DIR; sets server and port
start_model() {
    port=$(node -e 'const s = require("net").createServer();
s.listen(0, "127.0.0.1", () => { console.log(s.address().port); s.close(); })')
    "$cache/node_modules/.bin/llmock" -h 127.0.0.1 -p "$port" -f "$1" \
        --log-level warn >"$1.log" 2>&1 &
    server=$!
    disown
    for _ in $(seq 100); do
        curl -fs "http://127.0.0.1:$port/__aimock/journal" >/dev/null &&
            return
        sleep 0.1
    done
    echo "the fake model server does not start: $(tail -n 3 "$1.log")"
    return 1
}

# configure_home DIR PORT: where the CLIs find the model, as files of a home
configure_home() {
    mkdir -p "$1/.codex" "$1/.config/opencode" "$1/.pi/agent"
    cat >"$1/.codex/config.toml" <<END
model = "gpt-5.5"
model_provider = "fake"
[model_providers.fake]
name = "fake"
base_url = "http://127.0.0.1:$2/v1"
env_key = "OPENAI_API_KEY"
wire_api = "responses"
END
    cat >"$1/.config/opencode/opencode.json" <<END
{"autoupdate": false, "share": "disabled", "provider": {"fake": {
 "npm": "@ai-sdk/openai-compatible", "name": "Fake",
 "options": {"baseURL": "http://127.0.0.1:$2/v1",
             "apiKey": "{env:OPENAI_API_KEY}"},
 "models": {"fake-1": {"name": "Fake 1", "reasoning": true,
  "limit": {"context": 200000, "output": 32000},
  "cost": {"input": 3, "output": 15}}}}}}
END
    cat >"$1/.pi/agent/models.json" <<END
{"providers": {"fake": {"baseUrl": "http://127.0.0.1:$2/v1",
 "api": "openai-completions", "apiKey": "OPENAI_API_KEY",
 "models": [{"id": "fake-1", "name": "Fake 1",
  "input": ["text"], "contextWindow": 200000, "maxTokens": 32000,
  "cost": {"input": 3, "output": 15, "cacheRead": 0, "cacheWrite": 0}}]}}}
END
}
