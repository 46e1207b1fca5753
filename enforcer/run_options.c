#include "enforcer/run_options.h"

#include <stdlib.h>
#include <string.h>

#include "base/option_table.h"
#include "enforcer/doctor.h"
#include "state/contract.h"

#define NODE_MAX 253
#define NODE_CHARACTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._"

#define AT(field) offsetof(struct en_run_options, field)

static const struct option_row rows[] = {
	{"node", "NAME", "NODE_NAME", "", "Name of this node, as its Node object has it. Required.",
	 OPTION_TEXT, AT(node), 0, 0, false},
	{"nri-socket", "PATH", "TESSERA_NRI_SOCKET", "/var/run/nri/nri.sock",
	 "The runtime's NRI socket. In a pod, mount its folder: the file is made anew.",
	 OPTION_TEXT, AT(nri_socket), 0, 0, false},
	{"nri-name", "NAME", "TESSERA_NRI_NAME", "tessera", "Our name among the plugins.",
	 OPTION_TEXT, AT(nri_name), 0, 0, false},
	{"nri-index", "NN", "TESSERA_NRI_INDEX", "10", "Our place among them: two digits.",
	 OPTION_TEXT, AT(nri_index), 0, 0, false},
	{"hook-path", "PATH", "TESSERA_HOOK_PATH", "/opt/tessera/bin/tessera-hook",
	 "The hook on the host. Empty: none; memory limits are then set at container start alone.",
	 OPTION_TEXT, AT(hook_path), 0, 0, false},
	{"hook-source", "PATH", "TESSERA_HOOK_SOURCE", "",
	 "Copied to --hook-path at start where that is another file; empty: it is there.",
	 OPTION_TEXT, AT(hook_source), 0, 0, false},
	{"hook-socket", "PATH", "TESSERA_HOOK_SOCKET", "/run/tessera/hook.sock",
	 "Where the hook reaches us; the same path on the host.", OPTION_TEXT, AT(hook_socket), 0,
	 0, false},
	{"pipe-dir", "DIR", "TESSERA_PIPE_DIR", "/run/nvidia-mps", "Pipe directory of MPS.",
	 OPTION_TEXT, AT(pipe_dir), 0, 0, false},
	{"mps", "yes|no", "TESSERA_MPS", "yes",
	 "Run the MPS control daemon. no: somebody else does, at --pipe-dir.", OPTION_YES_NO,
	 AT(mps), 0, 0, false},
	{"mps-control", "PATH", "TESSERA_MPS_CONTROL", "nvidia-cuda-mps-control",
	 "The tool of MPS.", OPTION_TEXT, AT(mps_control), 0, 0, false},
	{"mps-log-dir", "DIR", "TESSERA_MPS_LOG_DIR", "/var/log/nvidia-mps", "Its logs.",
	 OPTION_TEXT, AT(mps_log_dir), 0, 0, false},
	{"run-dir", "DIR", "TESSERA_RUN_DIR", "/run/tessera", "Our own files: lost at reboot.",
	 OPTION_TEXT, AT(run_dir), 0, 0, false},
	{"shm-dir", "DIR", "TESSERA_SHM_DIR", "",
	 "Mounted as /dev/shm into containers of legacy MPS.", OPTION_TEXT, AT(shm_dir), 0, 0,
	 false},
	{"nvml", "PATH", "TESSERA_NVML", "",
	 "libnvidia-ml.so.1, where the loader does not find it.", OPTION_TEXT, AT(nvml), 0, 0,
	 false},
	{"nvidia-smi", "PATH", "TESSERA_NVIDIA_SMI", "nvidia-smi",
	 "For limits, without NVML's calls.", OPTION_TEXT, AT(smi), 0, 0, false},
	{"cgroup-mount", "DIR", "TESSERA_CGROUP_MOUNT", "",
	 "Where cgroup v2 is, if not as mounted.", OPTION_TEXT, AT(cgroup_mount), 0, 0, false},
	{"prefix", "PREFIX", "TESSERA_PREFIX", "nvidia.com/container.",
	 "Start of the keys that speak of a container.", OPTION_TEXT, AT(prefix), 0, 0, false},
	{"cdi", "yes|no", "TESSERA_CDI", "no",
	 "NVIDIA_VISIBLE_DEVICES holds CDI names (k8s.device-plugin.nvidia.com/gpu=...).",
	 OPTION_YES_NO, AT(cdi), 0, 0, false},
	{"cdi-devices", "yes|no", "TESSERA_CDI_DEVICES", "no",
	 "GPUs as CDI devices of NRI: containerd 1.7.30, 2.1 or CRI-O 1.34 and newer.",
	 OPTION_YES_NO, AT(cdi_devices), 0, 0, false},
	{"fail-open", "yes|no", "TESSERA_FAIL_OPEN", "no",
	 "Containers that should be refused start as they are, with all that their image lets them "
	 "see.",
	 OPTION_YES_NO, AT(fail_open), 0, 0, false},
	{"ignore-unplaced", "yes|no", "TESSERA_IGNORE_UNPLACED", "no",
	 "Pods that ask for a share but were not placed by Tessera are left alone, not refused.",
	 OPTION_YES_NO, AT(ignore_unplaced), 0, 0, false},
	{"stop-slipped", "yes|no", "TESSERA_STOP_SLIPPED", "no",
	 "Stop containers that run without what they should have (started while no agent was "
	 "connected); no: report them.",
	 OPTION_YES_NO, AT(stop_slipped), 0, 0, false},
	{"static", "FILE", "TESSERA_STATIC", "",
	 "Allocations from this file, on a node without Kubernetes (deploy/enforcer/static.json "
	 "is an example). Read again at SIGHUP.",
	 OPTION_TEXT, AT(static_file), 0, 0, false},
	{"mig", "static|dynamic|switch", "TESSERA_MIG", "dynamic",
	 "MIG instances: those cut beforehand are all there is; made for a container on GPUs in MIG "
	 "mode; or on idle GPUs, too, which are switched where that needs no reset.",
	 OPTION_TEXT, AT(mig), 0, 0, false},
	{"mig-linger", "SECONDS", "TESSERA_MIG_LINGER", "60",
	 "Idle instances that we made, and modes, are kept for so long.", OPTION_INTEGER,
	 AT(mig_linger_s), 1, 86400, false},
	{"clients-max", "N", "TESSERA_CLIENTS_MAX", "60", "Containers in one GPU; 0: not checked.",
	 OPTION_INTEGER, AT(clients_max), 0, 1000, false},
	{"reserve", "MIB", "TESSERA_RESERVE", "0", "Memory of each GPU that is not for requests.",
	 OPTION_INTEGER, AT(reserve_mib), 0, 1 << 20, false},
	{"overcommit-permille", "N", "TESSERA_OVERCOMMIT_PERMILLE", "0",
	 "Sum of limits on a GPU, of its memory; 0: not checked.", OPTION_INTEGER,
	 AT(overcommit_permille), 0, 100000, false},
	{"probe-seconds", "N", "TESSERA_PROBE_SECONDS", "10", "Between looks at the hardware.",
	 OPTION_INTEGER, AT(probe_s), 1, 3600, false},
	{"reconcile-seconds", "N", "TESSERA_RECONCILE_SECONDS", "60",
	 "Between looks at the limits of running containers.", OPTION_INTEGER, AT(reconcile_s), 1,
	 3600, false},
	{"hang-seconds", "N", "TESSERA_HANG_SECONDS", "120",
	 "/healthz fails, and names the thread, when one has been at the same for so long: the "
	 "driver takes seconds for what it takes longest for.",
	 OPTION_INTEGER, AT(hang_s), 1, 86400, false},
	{"kubelet-socket", "PATH", "TESSERA_KUBELET_SOCKET",
	 "/var/lib/kubelet/pod-resources/kubelet.sock",
	 "Tells which GPUs a device plugin gave away; empty: not asked.", OPTION_TEXT,
	 AT(kubelet_socket), 0, 0, false},
	{"listen", "ADDR:PORT", "TESSERA_LISTEN", "127.0.0.1:9454",
	 "Where /metrics, /healthz, /readyz and /api/v1/usage are; empty: nowhere.", OPTION_TEXT,
	 AT(listen), 0, 0, false},
	{"state-dir", "DIR", "TESSERA_STATE_DIR", "/var/lib/tessera",
	 "Peaks of workloads are kept there across restarts; empty: in memory only.", OPTION_TEXT,
	 AT(state_dir), 0, 0, false},
	{"no-gate", "CHECK,...", "TESSERA_NO_GATE", "",
	 "Checks of the doctor whose failure does not make the node unready.", OPTION_TEXT,
	 AT(no_gate), 0, 0, false},
	{"publish", "yes|no", "TESSERA_PUBLISH", "yes",
	 "Write inventory and condition to the Node. Outside of a pod, only with --kubeconfig.",
	 OPTION_YES_NO, AT(publish), 0, 0, false},
	{"kubeconfig", "FILE", "TESSERA_KUBECONFIG", "", "Where the API server is; else the pod's.",
	 OPTION_TEXT, AT(kubeconfig), 0, 0, false},
	{"log-level", "error|warn|info|debug", "TESSERA_LOG_LEVEL", "info",
	 "What is logged: this and what is worse.", OPTION_TEXT, AT(log_level), 0, 0, false},
	{"help", NULL, NULL, NULL, "Print this and exit.", OPTION_FLAG, AT(help), 0, 0, false},
};

#define ROWS (sizeof(rows) / sizeof(rows[0]))

static const struct option_table table = {rows, ROWS, NULL};

/* Each name is that of a check. */
static int check_gates(const char *list, struct err *err)
{
	while (*list != '\0') {
		size_t len = strcspn(list, ","), i = 0;
		const char *name;

		while ((name = en_doctor_check_name(i)) != NULL &&
		       (strlen(name) != len || memcmp(name, list, len) != 0))
			i++;
		if (name == NULL)
			return err_set(err, ERR_INVALID, "--no-gate: \"%.*s\" is no check",
				       len > 60 ? 60 : (int)len, list);
		list += len + (list[len] == ',');
	}
	return 0;
}

/* Relative ones would depend on where the agent was started, and mean something else to containers. */
static int check_paths(const struct en_run_options *o, struct err *err)
{
	const struct {
		const char *name, *path;
		bool may_be_empty;
	} paths[] = {
		{"nri-socket", o->nri_socket, false},
		{"hook-path", o->hook_path, true},
		{"hook-socket", o->hook_socket, o->hook_path[0] == '\0'},
		{"pipe-dir", o->pipe_dir, false},
		{"mps-log-dir", o->mps_log_dir, false},
		{"run-dir", o->run_dir, false},
		{"shm-dir", o->shm_dir, true},
		{"cgroup-mount", o->cgroup_mount, true},
		{"kubelet-socket", o->kubelet_socket, true},
		{"state-dir", o->state_dir, true},
	};

	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
		const char *path = paths[i].path;

		if (path[0] != '/' && !(path[0] == '\0' && paths[i].may_be_empty))
			return err_set(err, ERR_INVALID, "--%s: not an absolute path: \"%.100s\"",
				       paths[i].name, path);
	}
	if (o->mps_control[0] == '\0' || o->smi[0] == '\0')
		return err_set(err, ERR_INVALID, "--%s: \"\" is no program",
			       o->smi[0] == '\0' ? "nvidia-smi" : "mps-control");
	return 0;
}

static int check(const struct en_run_options *o, struct err *err)
{
	int rc;

	if (o->node[0] == '\0')
		return err_set(err, ERR_INVALID, "--node NAME (or NODE_NAME) is required");
	if (strspn(o->node, NODE_CHARACTERS) != strlen(o->node) || strlen(o->node) > NODE_MAX)
		return err_set(err, ERR_INVALID, "--node: \"%.100s\" is no name of a node",
			       o->node);
	rc = st_contract_prefix_check(o->prefix, err);
	if (rc < 0)
		return err_prefix(err, rc, "--prefix");
	if (o->static_file[0] != '\0' && o->kubeconfig[0] != '\0')
		return err_set(err, ERR_INVALID,
			       "--static and --kubeconfig: allocations come from one of them");
	rc = check_paths(o, err);
	return rc < 0 ? rc : check_gates(o->no_gate, err);
}

int en_run_options_parse(int argc, char *const *argv, const char *(*getenv_fn)(const char *name),
			 struct en_run_options *ret, struct err *err)
{
	struct en_run_options o = {.node = ""};
	int rc;

	rc = option_defaults(&table, &o, err);
	if (rc == 0)
		rc = option_environment(&table, &o, getenv_fn, err);
	if (rc == 0)
		rc = option_arguments(&table, &o, 0, argc, argv, err);
	if (rc < 0)
		return rc;
	rc = o.help ? 0 : check(&o, err);
	if (rc == 0)
		*ret = o;
	return rc;
}

void en_run_options_help(struct buf *b)
{
	buf_puts(b,
		 "usage: tessera-enforcer run [option...]\n\n"
		 "Keeps what was promised on this node: publishes its GPUs, runs MPS, gives\n"
		 "containers their share before they start and refuses those it cannot keep.\n\n");
	option_help(&table, b);
	buf_puts(b, "\n" EN_EXIT_STATUS_TEXT);
}

void en_run_options_markdown(struct buf *b)
{
	option_markdown(&table, b);
}
