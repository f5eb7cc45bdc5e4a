#!/bin/bash
# Asks a platform for everything that the shell client of unsandbox has a function for, through that client.
# Run in its folder; a line for each check.
source sync/src/un.sh 2>/dev/null
set +eu

check() { # name, what was said, what it must have
    if grep -q -- "$3" <<<"$2"; then echo "PASS: $1"; else echo "FAIL: $1 (said: $2)" && failed=1; fi
}
field() { jq -r ".$2 // empty" <<<"$1"; }
# Asks until a service is there, as their programs do.
await_service() {
    for _ in $(seq 300); do
        [ "$(field "$(service_get "$1")" state)" = running ] && return
        sleep 0.2
    done
}
failed=0

check health_check "$(health_check; echo "status $?")" "status 0"
check validate_keys "$(validate_keys)" '"valid":true'
check get_languages "$(get_languages)" '"python"'
check execute "$(execute python 'print(6 * 7)')" '"stdout":"42\\n"'
check "execute of what fails" "$(execute bash 'exit 3')" '"exit_code":3'
job=$(field "$(execute_async bash 'echo later')" job_id)
check wait_job "$(wait_job "$job")" '"stdout":"later\\n"'
check get_job "$(get_job "$job")" '"status":"completed"'
check list_jobs "$(list_jobs)" "$job"
check cancel_job "$(cancel_job "$job")" '"status":"completed"'

session=$(field "$(session_create bash zerotrust)" id)
check session_list "$(session_list)" "$session"
check session_get "$(session_get "$session")" '"status":"running"'
check session_execute "$(session_execute "$session" 'echo inside')" '"stdout":"inside\\n"'
check session_freeze "$(session_freeze "$session")" '"status":"frozen"'
check session_unfreeze "$(session_unfreeze "$session")" '"status":"running"'
check session_boost "$(session_boost "$session" 2)" "$session"
check session_unboost "$(session_unboost "$session")" "$session"
snapshot=$(field "$(snapshot_session "$session" kept)" id)
check snapshot_list "$(snapshot_list)" "$snapshot"
check snapshot_get "$(snapshot_get "$snapshot")" '"source_type":"session"'
check snapshot_restore "$(snapshot_restore "$snapshot")" "$snapshot"
cloned=$(field "$(snapshot_clone "$snapshot" session)" session_id)
check snapshot_clone "$(session_destroy "$cloned")" '"status":"terminated"'
check session_destroy "$(session_destroy "$session")" '"status":"terminated"'
check snapshot_delete "$(snapshot_delete "$snapshot")" "$snapshot"

service=$(field "$(service_create walked 8080 'exec python3 -m http.server 8080')" id)
check service_list "$(service_list)" "$service"
check service_get "$(service_get "$service")" '"name":"walked"'
await_service "$service"
check service_execute "$(service_execute "$service" 'echo served')" '"stdout":"served\\n"'
check service_env_set "$(service_env_set "$service" 'A=1')" '"count":1'
check service_env_get "$(service_env_get "$service")" '"has_vault":true'
check service_env_delete "$(service_env_delete "$service")" '"has_vault":false'
check service_logs "$(service_logs "$service" 10)" '"log":'
check service_redeploy "$(service_redeploy "$service")" "$service"
check service_resize "$(service_resize "$service" 2)" '"vcpu":2'
await_service "$service"
check service_freeze "$(service_freeze "$service")" '"state":"frozen"'
check service_unfreeze "$(service_unfreeze "$service")" "$service"
image=$(field "$(image_publish service "$service" walked)" id)
check image_list "$(image_list owned)" "$image"
check image_get "$(image_get "$image")" '"visibility":"private"'
check image_set_visibility "$(image_set_visibility "$image" unlisted)" '"visibility":"unlisted"'
check image_list_trusted "$(image_list_trusted "$image")" '"trusted_keys":\[\]'
check logs_fetch "$(logs_fetch all 10 1h)" '"lines":\['
spawned=$(field "$(image_spawn "$image" again 8080)" id)
check image_spawn "$(service_destroy "$spawned")" "$spawned"
check service_destroy "$(service_destroy "$service")" "$service"
check image_delete "$(image_delete "$image")" "$image"
exit "$failed"
