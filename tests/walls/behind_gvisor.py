"""What is not tried behind gVisor, and why: tests of parts that are not there. What is tried there and ends
otherwise says so in its own test.
"""

from __future__ import annotations

from collections.abc import Mapping

_LAUNCHER = "a part of the launcher's: nothing of it is there"
_FILTER = "asks the filter for calls of the host's kernel: of what runs there none is one"
_SHOWN = "its limits are shown by a kernel of its own, not by files that its supervisor answers"
_INODES = "inodes of another kernel are not the host's, whatever their numbers"
_NAMESPACES = "namespaces that programs make are its own kernel's: no wall of the host's is behind them"

# By module, test or case (as pytest names it).
NOT_TRIED: Mapping[str, str] = {
    "test_filter.py::test_refused_calls_answer_eperm": _FILTER,
    "test_filter.py::test_calls_that_nobody_has_looked_at_do_not_exist": _FILTER,
    "test_filter.py::test_memory_that_the_kernel_cannot_see_is_refused": _FILTER,
    "test_filter.py::test_arguments_are_judged": _FILTER,
    "test_filter.py::test_ordinary_arguments_pass": "tries arguments that its kernel does not know",
    "test_nesting.py": _NAMESPACES,
    "test_older_walls.py": _LAUNCHER,
    "test_shown_begins.py": _LAUNCHER,
    "test_coresidency.py::test_proc_is_never_mounted_over_what_a_link_leads_to": _LAUNCHER,
    "test_coresidency.py::test_counters_of_the_host_are_covered[runsc-cgroups]": "counts its own groups",
    "test_files.py::test_sensitive_entries_of_proc_are_covered[runsc-cmdline]": "is its own kernel's",
    "test_leftovers.py::test_no_process_outlives_its_destroy": "no process of it is one of the host's",
    "test_leftovers.py::test_a_failed_making_leaves_nothing": _LAUNCHER,
    "test_pools.py::test_the_fingerprint_names_what_this_host_lacks": "tests/contract/test_oci.py does",
    "test_processes.py::test_no_two_sandboxes_share_a_host_uid": "no process of it is one of the host's",
    "test_processes.py::test_nothing_of_the_host_is_inherited": "no process of it is one of the host's",
    "test_shared.py::test_no_inode_that_a_path_leads_to_is_in_two_sandboxes": _INODES,
    "test_shared.py::test_no_inode_inside_is_one_of_the_hosts_devices_or_namespaces": _INODES,
    "test_shared.py::test_the_sandbox_that_is_locked_out_does_hold_its_locks": "its devices take no locks",
    "test_survival.py::test_files_can_be_read_while_processes_are_frozen": "a deviation of the contract",
    "test_survival.py::test_the_launcher_may_die_and_the_next_order_starts_another": _LAUNCHER,
    "test_syscalls.py::test_no_namespace_can_be_cloned": _NAMESPACES,
    "test_syscalls.py::test_a_user_namespace_does_not_bring_capabilities_back": _NAMESPACES,
    "test_syscalls.py::test_the_core_limit_that_silences_the_hosts_crash_handler_cannot_be_changed": (
        "no process of it is one of the host's"
    ),
    "test_kernel_memory.py::test_who_drains_the_hosts_code_of_filters_is_killed": _FILTER,
    "test_kernel_memory.py::test_many_at_once_get_no_more_of_them_than_there_are_threads": _FILTER,
    "test_own_limits.py::test_a_program_that_runs_sees_a_boost_and_its_end": "is told what it began with",
    "test_own_limits.py::test_the_kernel_still_refuses_what_it_refused": "has no processor beyond its own",
    "test_own_limits.py::test_a_program_that_is_begun_does_not_keep_the_files_alive": _SHOWN,
    "test_own_limits.py::test_the_hosts_own_processes_are_never_made_to_wait_for_it": _SHOWN,
    "test_own_limits.py::test_readers_that_are_killed_or_stopped_amid_a_question_harm_nobody": _SHOWN,
}


def reason(name: str) -> str | None:
    """Returns why a test is not tried there; `name`: from its module on, with the case."""
    for known in (name, name.partition("[")[0], name.partition("::")[0]):
        if known in NOT_TRIED:
            return NOT_TRIED[known]
    return None
