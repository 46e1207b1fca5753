/* The options of `tessera-enforcer run`: one table from which the parser and --help come. */
#ifndef TESSERA_ENFORCER_RUN_OPTIONS_H
#define TESSERA_ENFORCER_RUN_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

/* Of all subcommands; doctor has one meaning more of 1. */
#define EN_EXIT_STATUS_TEXT                                                                        \
	"exit status: 0; 2 wrong options, configuration or input; 1 all else that fails\n"

struct en_run_options {
	/* Strings belong to argv, the environment or the table. "" = not given. */
	const char *node, *nri_socket, *nri_name, *nri_index, *hook_socket, *hook_path;
	const char *pipe_dir, *mps_log_dir, *run_dir, *mps_control, *nvml, *smi, *shm_dir;
	const char *cgroup_mount, *prefix, *kubeconfig, *log_level;
	const char *hook_source, *kubelet_socket, *listen, *state_dir, *static_file, *no_gate, *mig;
	int64_t mig_linger_s, hang_s, probe_s, reconcile_s, clients_max, reserve_mib;
	int64_t overcommit_permille;
	bool cdi, cdi_devices, fail_open, ignore_unplaced, mps, publish, stop_slipped;
	bool help;
};

/* Reads the command line (behind the word run) over the environment (TESSERA_..., NODE_NAME) over the
 * defaults. ERR_INVALID, ERR_RANGE: the message names option and value. getenv_fn NULL: getenv. */
int en_run_options_parse(int argc, char *const *argv, const char *(*getenv_fn)(const char *name),
			 struct en_run_options *ret, struct err *err);
void en_run_options_help(struct buf *b);
/* The table that OPTIONS.md holds. */
void en_run_options_markdown(struct buf *b);

#endif
