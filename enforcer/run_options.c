#include "enforcer/run_options.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/quantity.h"
#include "enforcer/doctor.h"

enum kind { TEXT, FLAG, YES_NO, INTEGER };

struct row {
	const char *name, *arg; /* arg NULL: a flag */
	const char *env;
	const char *fallback;
	const char *help;
	enum kind kind;
	size_t offset;
	int64_t min, max;
};

#define AT(field) offsetof(struct en_run_options, field)

static const struct row rows[] = {
	{"node", "NAME", "NODE_NAME", "", "Name of this node, as its Node object has it. Required.",
	 TEXT, AT(node), 0, 0},
	{"nri-socket", "PATH", "TESSERA_NRI_SOCKET", "/var/run/nri/nri.sock",
	 "The runtime's NRI socket. In a pod, mount its folder: the file is made anew.", TEXT,
	 AT(nri_socket), 0, 0},
	{"nri-name", "NAME", "TESSERA_NRI_NAME", "tessera", "Our name among the plugins.", TEXT,
	 AT(nri_name), 0, 0},
	{"nri-index", "NN", "TESSERA_NRI_INDEX", "10", "Our place among them: two digits.", TEXT,
	 AT(nri_index), 0, 0},
	{"hook-path", "PATH", "TESSERA_HOOK_PATH", "/opt/tessera/bin/tessera-hook",
	 "The hook on the host. Empty: none; memory limits are then set at container start alone.",
	 TEXT, AT(hook_path), 0, 0},
	{"hook-source", "PATH", "TESSERA_HOOK_SOURCE", "",
	 "Copied to --hook-path at start where that is another file; empty: it is there.", TEXT,
	 AT(hook_source), 0, 0},
	{"hook-socket", "PATH", "TESSERA_HOOK_SOCKET", "/run/tessera/hook.sock",
	 "Where the hook reaches us; the same path on the host.", TEXT, AT(hook_socket), 0, 0},
	{"pipe-dir", "DIR", "TESSERA_PIPE_DIR", "/run/nvidia-mps", "Pipe directory of MPS.", TEXT,
	 AT(pipe_dir), 0, 0},
	{"mps", "yes|no", "TESSERA_MPS", "yes",
	 "Run the MPS control daemon. no: somebody else does, at --pipe-dir.", YES_NO, AT(mps), 0,
	 0},
	{"mps-control", "PATH", "TESSERA_MPS_CONTROL", "nvidia-cuda-mps-control",
	 "The tool of MPS.", TEXT, AT(mps_control), 0, 0},
	{"mps-log-dir", "DIR", "TESSERA_MPS_LOG_DIR", "/var/log/nvidia-mps", "Its logs.", TEXT,
	 AT(mps_log_dir), 0, 0},
	{"run-dir", "DIR", "TESSERA_RUN_DIR", "/run/tessera", "Our own files: lost at reboot.",
	 TEXT, AT(run_dir), 0, 0},
	{"shm-dir", "DIR", "TESSERA_SHM_DIR", "",
	 "Mounted as /dev/shm into containers of legacy MPS.", TEXT, AT(shm_dir), 0, 0},
	{"nvml", "PATH", "TESSERA_NVML", "",
	 "libnvidia-ml.so.1, where the loader does not find it.", TEXT, AT(nvml), 0, 0},
	{"nvidia-smi", "PATH", "TESSERA_NVIDIA_SMI", "nvidia-smi",
	 "For limits, without NVML's calls.", TEXT, AT(smi), 0, 0},
	{"cgroup-mount", "DIR", "TESSERA_CGROUP_MOUNT", "",
	 "Where cgroup v2 is, if not as mounted.", TEXT, AT(cgroup_mount), 0, 0},
	{"prefix", "PREFIX", "TESSERA_PREFIX", "nvidia.com/container.",
	 "Start of the keys that speak of a container.", TEXT, AT(prefix), 0, 0},
	{"cdi", "yes|no", "TESSERA_CDI", "no",
	 "NVIDIA_VISIBLE_DEVICES holds CDI names (k8s.device-plugin.nvidia.com/gpu=...).", YES_NO,
	 AT(cdi), 0, 0},
	{"cdi-devices", "yes|no", "TESSERA_CDI_DEVICES", "no",
	 "GPUs as CDI devices of NRI: containerd 1.7.30, 2.1 or CRI-O 1.34 and newer.", YES_NO,
	 AT(cdi_devices), 0, 0},
	{"fail-open", "yes|no", "TESSERA_FAIL_OPEN", "no",
	 "Containers that should be refused start as they are, with all that their image lets them "
	 "see.",
	 YES_NO, AT(fail_open), 0, 0},
	{"ignore-unplaced", "yes|no", "TESSERA_IGNORE_UNPLACED", "no",
	 "Pods that ask for a share but were not placed by Tessera are left alone, not refused.",
	 YES_NO, AT(ignore_unplaced), 0, 0},
	{"stop-slipped", "yes|no", "TESSERA_STOP_SLIPPED", "no",
	 "Stop containers that run without what they should have (started while no agent was "
	 "connected); no: report them.",
	 YES_NO, AT(stop_slipped), 0, 0},
	{"static", "FILE", "TESSERA_STATIC", "",
	 "Allocations from this file, on a node without Kubernetes (deploy/enforcer/static.json "
	 "is an example). Read again at SIGHUP.",
	 TEXT, AT(static_file), 0, 0},
	{"mig", "static|dynamic|switch", "TESSERA_MIG", "dynamic",
	 "MIG instances: those cut beforehand are all there is; made for a container on GPUs in MIG "
	 "mode; or on idle GPUs, too, which are switched where that needs no reset.",
	 TEXT, AT(mig), 0, 0},
	{"mig-linger", "SECONDS", "TESSERA_MIG_LINGER", "60",
	 "Idle instances that we made, and modes, are kept for so long.", INTEGER, AT(mig_linger_s),
	 1, 86400},
	{"clients-max", "N", "TESSERA_CLIENTS_MAX", "60", "Containers in one GPU; 0: not checked.",
	 INTEGER, AT(clients_max), 0, 1000},
	{"reserve", "MIB", "TESSERA_RESERVE", "0", "Memory of each GPU that is not for requests.",
	 INTEGER, AT(reserve_mib), 0, 1 << 20},
	{"overcommit-permille", "N", "TESSERA_OVERCOMMIT_PERMILLE", "0",
	 "Sum of limits on a GPU, of its memory; 0: not checked.", INTEGER, AT(overcommit_permille),
	 0, 100000},
	{"probe-seconds", "N", "TESSERA_PROBE_SECONDS", "10", "Between looks at the hardware.",
	 INTEGER, AT(probe_s), 1, 3600},
	{"reconcile-seconds", "N", "TESSERA_RECONCILE_SECONDS", "60",
	 "Between looks at the limits of running containers.", INTEGER, AT(reconcile_s), 1, 3600},
	{"kubelet-socket", "PATH", "TESSERA_KUBELET_SOCKET",
	 "/var/lib/kubelet/pod-resources/kubelet.sock",
	 "Tells which GPUs a device plugin gave away; empty: not asked.", TEXT, AT(kubelet_socket),
	 0, 0},
	{"listen", "ADDR:PORT", "TESSERA_LISTEN", "127.0.0.1:9454",
	 "Where /metrics, /healthz, /readyz and /api/v1/usage are; empty: nowhere.", TEXT,
	 AT(listen), 0, 0},
	{"state-dir", "DIR", "TESSERA_STATE_DIR", "/var/lib/tessera",
	 "Peaks of workloads are kept there across restarts; empty: in memory only.", TEXT,
	 AT(state_dir), 0, 0},
	{"no-gate", "CHECK,...", "TESSERA_NO_GATE", "",
	 "Checks of the doctor whose failure does not make the node unready.", TEXT, AT(no_gate), 0,
	 0},
	{"publish", "yes|no", "TESSERA_PUBLISH", "yes",
	 "Write inventory and condition to the Node. Outside of a pod, only with --kubeconfig.",
	 YES_NO, AT(publish), 0, 0},
	{"kubeconfig", "FILE", "TESSERA_KUBECONFIG", "", "Where the API server is; else the pod's.",
	 TEXT, AT(kubeconfig), 0, 0},
	{"log-level", "LEVEL", "TESSERA_LOG_LEVEL", "info", "error, warn, info or debug.", TEXT,
	 AT(log_level), 0, 0},
	{"help", NULL, NULL, NULL, "Print this and exit.", FLAG, AT(help), 0, 0},
};

#define ROWS (sizeof(rows) / sizeof(rows[0]))

static int set_bool(bool *at, const char *value, struct err *err)
{
	static const char *const yes[] = {"yes", "true", "on", "1"};
	static const char *const no[] = {"no", "false", "off", "0"};

	for (size_t i = 0; i < 4; i++) {
		if (strcmp(value, yes[i]) == 0 || strcmp(value, no[i]) == 0) {
			*at = strcmp(value, yes[i]) == 0;
			return 0;
		}
	}
	return err_set(err, ERR_INVALID, "\"%.100s\" is neither yes nor no", value);
}

static int set_row(const struct row *r, struct en_run_options *o, const char *value,
		   struct err *err)
{
	char *at = (char *)o + r->offset;
	int64_t v;
	int rc;

	switch (r->kind) {
	case TEXT:
		memcpy(at, &value, sizeof(value));
		return 0;
	case FLAG:
	case YES_NO:
		return set_bool((bool *)at, value, err);
	case INTEGER:
		rc = integer_parse(value, r->min, r->max, &v, err);
		if (rc == 0)
			memcpy(at, &v, sizeof(v));
		return rc;
	}
	return ERR_INTERNAL;
}

static const struct row *row_find(const char *name, size_t len)
{
	for (size_t i = 0; i < ROWS; i++) {
		if (strlen(rows[i].name) == len && memcmp(rows[i].name, name, len) == 0)
			return &rows[i];
	}
	return NULL;
}

/* One argument, at argv[*i]; *i moves to the last one used. */
static int parse_arg(int argc, char *const *argv, int *i, struct en_run_options *o, struct err *err)
{
	const char *arg = argv[*i], *value;
	const struct row *r = NULL;
	size_t len = 0;
	int rc;

	if (strcmp(arg, "-h") == 0)
		arg = "--help";
	if (strncmp(arg, "--", 2) == 0) {
		len = strcspn(arg + 2, "=");
		r = row_find(arg + 2, len);
	}
	if (r == NULL)
		return err_set(err, ERR_INVALID, "%.100s: no such option; see --help", arg);
	value = arg[2 + len] == '=' ? arg + 3 + len : NULL;
	if (r->arg == NULL && value == NULL)
		value = "yes";
	if (value == NULL) {
		if (*i + 1 >= argc)
			return err_set(err, ERR_INVALID, "--%s needs %s", r->name, r->arg);
		value = argv[++*i];
	}
	rc = set_row(r, o, value, err);
	return rc < 0 ? err_prefix(err, rc, "--%s", r->name) : 0;
}

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

static int check(const struct en_run_options *o, struct err *err)
{
	if (o->node[0] == '\0')
		return err_set(err, ERR_INVALID, "--node NAME (or NODE_NAME) is required");
	if (log_level_parse(o->log_level) < 0)
		return err_set(err, ERR_INVALID,
			       "--log-level: \"%.100s\" is none of error, warn, info, debug",
			       o->log_level);
	if (o->prefix[0] == '\0' || strchr(o->prefix, '/') == NULL)
		return err_set(err, ERR_INVALID,
			       "--prefix: \"%.100s\" is no start of an annotation key", o->prefix);
	if (o->hook_path[0] != '\0' && (o->hook_path[0] != '/' || o->hook_socket[0] != '/'))
		return err_set(err, ERR_INVALID,
			       "--hook-path, --hook-socket: not an absolute path: \"%.100s\", "
			       "\"%.100s\"",
			       o->hook_path, o->hook_socket);
	if (o->static_file[0] != '\0' && o->kubeconfig[0] != '\0')
		return err_set(err, ERR_INVALID,
			       "--static and --kubeconfig: allocations come from one of them");
	if (o->state_dir[0] != '\0' && o->state_dir[0] != '/')
		return err_set(err, ERR_INVALID, "--state-dir: not an absolute path: \"%.100s\"",
			       o->state_dir);
	return check_gates(o->no_gate, err);
}

int en_run_options_parse(int argc, char *const *argv, const char *(*getenv_fn)(const char *name),
			 struct en_run_options *ret, struct err *err)
{
	struct en_run_options o = {.node = ""};
	int rc;

	for (size_t i = 0; i < ROWS; i++) {
		const char *value = NULL;

		if (rows[i].fallback != NULL && set_row(&rows[i], &o, rows[i].fallback, err) < 0)
			return err_prefix(err, ERR_INTERNAL, "--%s", rows[i].name);
		if (rows[i].env != NULL)
			value = getenv_fn != NULL ? getenv_fn(rows[i].env) : getenv(rows[i].env);
		rc = value != NULL && value[0] != '\0' ? set_row(&rows[i], &o, value, err) : 0;
		if (rc < 0)
			return err_prefix(err, rc, "%s", rows[i].env);
	}
	for (int i = 0; i < argc; i++) {
		rc = parse_arg(argc, argv, &i, &o, err);
		if (rc < 0)
			return rc;
	}
	rc = o.help ? 0 : check(&o, err);
	if (rc == 0)
		*ret = o;
	return rc;
}

void en_run_options_help(struct buf *b)
{
	buf_puts(b,
		 "usage: tessera-enforcer run [option...]\n\n"
		 "Keeps what was promised on this node: publishes its GPUs, runs MPS, gives "
		 "containers\ntheir share before they start and refuses those it cannot keep.\n\n");
	for (size_t i = 0; i < ROWS; i++) {
		buf_printf(b, "  --%s%s%s\n      %s", rows[i].name, rows[i].arg != NULL ? " " : "",
			   rows[i].arg != NULL ? rows[i].arg : "", rows[i].help);
		if (rows[i].fallback != NULL && rows[i].fallback[0] != '\0')
			buf_printf(b, " [%s]", rows[i].fallback);
		if (rows[i].env != NULL)
			buf_printf(b, " (%s)", rows[i].env);
		buf_putc(b, '\n');
	}
}

void en_run_options_markdown(struct buf *b)
{
	buf_puts(b, "| option | default | environment | meaning |\n|---|---|---|---|\n");
	for (size_t i = 0; i < ROWS; i++) {
		bool given = rows[i].fallback != NULL && rows[i].fallback[0] != '\0';

		buf_printf(b, "| `--%s%s", rows[i].name, rows[i].arg != NULL ? " " : "");
		for (const char *p = rows[i].arg != NULL ? rows[i].arg : ""; *p != '\0'; p++) {
			if (*p == '|')
				buf_putc(b, '\\');
			buf_putc(b, *p);
		}
		buf_printf(b, "` | %s%s%s | %s%s%s | %s |\n", given ? "`" : "",
			   given ? rows[i].fallback : "–", given ? "`" : "",
			   rows[i].env != NULL ? "`" : "", rows[i].env != NULL ? rows[i].env : "–",
			   rows[i].env != NULL ? "`" : "", rows[i].help);
	}
}
