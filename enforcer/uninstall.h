/* `tessera-enforcer uninstall`: takes from the node what the agent brought. */
#ifndef TESSERA_ENFORCER_UNINSTALL_H
#define TESSERA_ENFORCER_UNINSTALL_H

#include "base/err.h"
#include "enforcer/run_options.h"

/* argv begins behind the word: the agent's own options, so that the same places are meant, and --force.
 * Exit status: 0 nothing is left; 1 something could not be taken away, each with a line on standard error;
 * 2 wrong usage. Where MPS or MIG failed, the folders that tell what is left stay for the next attempt. */
int en_uninstall_main(int argc, char *const *argv);

/* Removes a folder with all in it; other file systems mounted below stay, and so does the folder where it is
 * a mount itself. A folder that is not there is fine. ERR_INVALID: not an absolute path at least two
 * levels deep; ERR_IO names what stayed. */
int en_remove_tree(const char *path, struct err *err);

/* Removes the MIG instances that an agent with these options made (its file in run_dir names them; of o only run_dir,
 * nvml and kubelet_socket count), and puts GPUs out of MIG mode that it put into it. What others made stays.
 * ERR_CONFLICT: some are still there; ERR_IO: the driver does not answer; ERR_NOMEM. */
int en_remove_mig(const struct en_run_options *o, struct err *err);

#endif
