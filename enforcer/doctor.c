#include "enforcer/doctor.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "base/file.h"
#include "base/option_table.h"
#include "enforcer/doctor_internal.h"
#include "enforcer/limits.h"
#include "enforcer/mps_internal.h"

#define FILE_MAX 262144
#define CONTAINERS_MAX 256

static const struct en_check *const parts[] = {doctor_gpu_checks, doctor_system_checks,
					       doctor_mps_checks, doctor_limit_checks};
#define PART_COUNT (sizeof(parts) / sizeof(parts[0]))

/* ---- for the checks ---- */

enum en_check_result doctor_say(char text[EN_FINDING_CAP], enum en_check_result r, const char *fmt,
				...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, EN_FINDING_CAP, fmt, ap);
	va_end(ap);
	/* Names of processes are whatever their owners want: neither a terminal nor JSON gets them raw. */
	for (char *c = text; *c != '\0'; c++) {
		if (*c == '\n' || *c == '\t')
			*c = ' ';
		else if ((unsigned char)*c < ' ' || (unsigned char)*c >= 0x7f)
			*c = '?';
	}
	return r;
}

const char *doctor_path(const struct en_doctor_env *env, const char *path,
			char buf[DOCTOR_PATH_CAP])
{
	snprintf(buf, DOCTOR_PATH_CAP, "%s%s", env->root, path);
	return buf;
}

const char *doctor_cgroup(const struct en_doctor_env *env, const char *path,
			  char buf[DOCTOR_PATH_CAP])
{
	bool given = env->cgroup_mount != NULL && env->cgroup_mount[0] != '\0';

	snprintf(buf, DOCTOR_PATH_CAP, "%s%s", given ? env->cgroup_mount : "/sys/fs/cgroup", path);
	return buf;
}

char *doctor_read(const struct en_doctor_env *env, const char *path)
{
	char buf[DOCTOR_PATH_CAP], *text = NULL;
	size_t len = 0;

	if (file_read(doctor_path(env, path, buf), FILE_MAX, &text, &len, NULL) != 0)
		return NULL;
	for (size_t i = 0; i < len; i++) {
		if (text[i] == '\0')
			text[i] = '\n';
	}
	return text;
}

bool doctor_has_word(const char *list, const char *word)
{
	size_t n = strlen(word);

	while (*list != '\0') {
		size_t len;

		list += strspn(list, " \t\n");
		len = strcspn(list, " \t\n");
		if (len == n && memcmp(list, word, n) == 0)
			return true;
		list += len;
	}
	return false;
}

static bool is_program(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

bool doctor_has_program(const char *name)
{
	const char *path = getenv("PATH");
	char full[DOCTOR_PATH_CAP];

	if (strchr(name, '/') != NULL)
		return is_program(name);
	while (path != NULL && *path != '\0') {
		size_t len = strcspn(path, ":");

		snprintf(full, sizeof(full), "%.*s/%s", (int)len, path, name);
		if (len > 0 && is_program(full))
			return true;
		path += len + (path[len] == ':');
	}
	return false;
}

/* ---- running ---- */

static const struct en_check *check_at(size_t i)
{
	for (size_t p = 0; p < PART_COUNT; p++) {
		for (size_t k = 0; parts[p][k].name != NULL; k++) {
			if (i-- == 0)
				return &parts[p][k];
		}
	}
	return NULL;
}

const char *en_doctor_check_name(size_t i)
{
	const struct en_check *c = check_at(i);

	return c != NULL ? c->name : NULL;
}

const char *en_check_result_name(enum en_check_result r)
{
	static const char *const names[] = {"ok", "skip", "warn", "fail"};

	return r <= EN_CHECK_FAIL ? names[r] : "?";
}

void en_doctor_run(const struct en_doctor_env *env, struct en_doctor_report *ret)
{
	const struct en_check *c;

	memset(ret, 0, sizeof(*ret));
	while (ret->count < EN_CHECKS_MAX && (c = check_at(ret->count)) != NULL) {
		struct en_finding *f = &ret->findings[ret->count++];

		*f = (struct en_finding){.name = c->name,
					 .title = c->title,
					 .cause = c->cause,
					 .remedy = c->remedy,
					 .gates = c->gates};
		f->result = c->run(env, f->text);
		ret->ok += f->result == EN_CHECK_OK;
		ret->skipped += f->result == EN_CHECK_SKIP;
		ret->warnings += f->result == EN_CHECK_WARN;
		ret->failures += f->result == EN_CHECK_FAIL;
		if (f->result == EN_CHECK_FAIL && f->gates && ret->gate == NULL)
			ret->gate = f;
	}
}

/* ---- printing ---- */

void en_doctor_print(const struct en_doctor_report *r, bool verbose, struct buf *out)
{
	for (size_t i = 0; i < r->count; i++) {
		const struct en_finding *f = &r->findings[i];
		bool well = f->result == EN_CHECK_OK || f->result == EN_CHECK_SKIP;

		if (well && !verbose)
			continue;
		buf_printf(out, "%-4s  %-17s %s\n", en_check_result_name(f->result), f->name,
			   f->text);
		if (!well)
			buf_printf(out, "      cause:  %s\n      remedy: %s\n", f->cause,
				   f->remedy);
	}
	buf_printf(out, "%zu checks: %zu ok, %zu warnings, %zu failures, %zu skipped\n", r->count,
		   r->ok, r->warnings, r->failures, r->skipped);
}

static bool put_check(cJSON *list, const struct en_finding *f)
{
	cJSON *o = cJSON_CreateObject();

	if (o == NULL || !cJSON_AddItemToArray(list, o)) {
		cJSON_Delete(o);
		return false;
	}
	return cJSON_AddStringToObject(o, "name", f->name) != NULL &&
	       cJSON_AddStringToObject(o, "title", f->title) != NULL &&
	       cJSON_AddStringToObject(o, "result", en_check_result_name(f->result)) != NULL &&
	       cJSON_AddStringToObject(o, "found", f->text) != NULL &&
	       cJSON_AddBoolToObject(o, "gates", f->gates) != NULL &&
	       cJSON_AddStringToObject(o, "cause", f->cause) != NULL &&
	       cJSON_AddStringToObject(o, "remedy", f->remedy) != NULL;
}

int en_doctor_json(const struct en_doctor_report *r, struct buf *out, struct err *err)
{
	cJSON *root = cJSON_CreateObject(), *list = NULL;
	char *text = NULL;
	bool ok = root != NULL && cJSON_AddNumberToObject(root, "ok", (double)r->ok) != NULL &&
		  cJSON_AddNumberToObject(root, "warnings", (double)r->warnings) != NULL &&
		  cJSON_AddNumberToObject(root, "failures", (double)r->failures) != NULL &&
		  cJSON_AddNumberToObject(root, "skipped", (double)r->skipped) != NULL;

	if (ok)
		list = cJSON_AddArrayToObject(root, "checks");
	ok = list != NULL;
	for (size_t i = 0; ok && i < r->count; i++)
		ok = put_check(list, &r->findings[i]);
	if (ok)
		text = cJSON_PrintUnformatted(root);
	if (text != NULL) {
		buf_puts(out, text);
		buf_putc(out, '\n');
	}
	cJSON_free(text);
	cJSON_Delete(root);
	return text != NULL && buf_ok(out) ? 0 : err_set(err, ERR_NOMEM, "out of memory");
}

/* ---- the command ---- */

struct command {
	bool json, verbose, help;
	const char *root, *pipe_dir, *log_dir, *run_dir, *nri, *kubelet, *library, *control, *smi;
};

/* Variables are the agent's: in its pod the doctor looks where it does. */
#define TEXT(name, arg, env, fallback, help, field)                                                \
	{                                                                                          \
		name, arg, env, fallback, help, OPTION_TEXT, offsetof(struct command, field), 0,   \
			0, false                                                                   \
	}
#define FLAG(name, help, field)                                                                    \
	{                                                                                          \
		name, NULL, NULL, NULL, help, OPTION_FLAG, offsetof(struct command, field), 0, 0,  \
			false                                                                      \
	}
static const struct option_row rows[] = {
	FLAG("json", "Print JSON, with all checks.", json),
	FLAG("verbose", "Print what is well, too.", verbose),
	TEXT("root", "DIR", NULL, "", "Where the node's files are, if not at /.", root),
	TEXT("mps-pipe-dir", "DIR", "TESSERA_PIPE_DIR", "/run/nvidia-mps", "Pipe directory of MPS.",
	     pipe_dir),
	TEXT("mps-log-dir", "DIR", "TESSERA_MPS_LOG_DIR", "/var/log/nvidia-mps", "Its logs.",
	     log_dir),
	TEXT("run-dir", "DIR", NULL, "/run/tessera/mps", "The agent's own files about MPS.",
	     run_dir),
	TEXT("nri-socket", "PATH", "TESSERA_NRI_SOCKET", "/var/run/nri/nri.sock",
	     "The runtime's NRI socket.", nri),
	TEXT("kubelet-socket", "PATH", "TESSERA_KUBELET_SOCKET",
	     "/var/lib/kubelet/pod-resources/kubelet.sock",
	     "Tells which GPUs a device plugin gave away; empty: not looked for.", kubelet),
	TEXT("nvml", "PATH", "TESSERA_NVML", "",
	     "libnvidia-ml.so.1, where the loader does not find it.", library),
	TEXT("mps-control", "PATH", "TESSERA_MPS_CONTROL", "nvidia-cuda-mps-control",
	     "The tool of MPS.", control),
	TEXT("nvidia-smi", "PATH", "TESSERA_NVIDIA_SMI", "nvidia-smi",
	     "For limits, without NVML's calls.", smi),
	FLAG("help", "Print this and exit.", help),
};
static const struct option_table table = {rows, sizeof(rows) / sizeof(rows[0]), NULL};

static void put_help(struct buf *b)
{
	buf_puts(b, "usage: tessera-enforcer doctor [option...]\n\n"
		    "Checks the sharing layer and the hardware of this node.\n\n");
	option_help(&table, b);
	buf_puts(b, "\nexit status: 0 no failure; 1 failures, or all else that fails; 2 wrong "
		    "options\n");
}

static int check_options(const struct command *c, struct err *err)
{
	const struct {
		const char *name, *path;
		bool may_be_empty;
	} paths[] = {{"root", c->root, true},
		     {"mps-pipe-dir", c->pipe_dir, false},
		     {"mps-log-dir", c->log_dir, false},
		     {"run-dir", c->run_dir, false},
		     {"nri-socket", c->nri, false},
		     {"kubelet-socket", c->kubelet, true}};
	struct stat st;

	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
		if (paths[i].path[0] != '/' && !(paths[i].may_be_empty && paths[i].path[0] == '\0'))
			return err_set(err, ERR_INVALID, "--%s: \"%.100s\" is no absolute path",
				       paths[i].name, paths[i].path);
	}
	if (c->root[0] != '\0' && (stat(c->root, &st) != 0 || !S_ISDIR(st.st_mode)))
		return err_set(err, ERR_INVALID, "--root: \"%.200s\" is no folder", c->root);
	return 0;
}

static int parse(int argc, char *const *argv, struct command *ret, struct err *err)
{
	int r = option_defaults(&table, ret, err);

	if (r == 0)
		r = option_environment(&table, ret, NULL, err);
	if (r == 0)
		r = option_arguments(&table, ret, 1, argc, argv, err);
	return r == 0 && !ret->help ? check_options(ret, err) : r;
}

/* What the checks need, from the options; the rest is freed by the caller. */
struct parts {
	struct en_prober *prober;
	struct en_probe *probe;
	struct en_limits *limits;
	struct en_mps *mps;
	struct en_doctor_container *containers;
	struct en_doctor_report *report;
};

static void parts_fini(struct parts *p)
{
	en_prober_free(p->prober);
	en_limits_free(p->limits);
	en_mps_free(p->mps);
	free(p->probe);
	free(p->containers);
	free(p->report);
}

/* A process in a pod is somebody's whom the agent knows; so are MPS' own. */
static bool is_known(void *ctx, uint32_t pid)
{
	const char *root = ctx;
	char path[DOCTOR_PATH_CAP], target[512], *cgroup = NULL;
	size_t size = 0;
	bool in_pod;
	ssize_t len;

	snprintf(path, sizeof(path), "%s/proc/%u/exe", root, pid);
	len = readlink(path, target, sizeof(target) - 1);
	if (len > 0) {
		target[len] = '\0';
		if (strstr(target, "/nvidia-cuda-mps-") != NULL)
			return true;
	}
	snprintf(path, sizeof(path), "%s/proc/%u/cgroup", root, pid);
	if (file_read(path, 65536, &cgroup, &size, NULL) != 0)
		return false;
	in_pod = strstr(cgroup, "kubepods") != NULL;
	free(cgroup);
	return in_pod;
}

static int prepare(const struct command *c, struct parts *p, struct err *err)
{
	char proc[EN_PATH_CAP], root[EN_PATH_CAP]; /* not used after the run below */
	const char *library = c->library[0] != '\0' ? c->library : NULL;
	struct en_probe_options po = {
		.library = library, .root = c->root, .is_ours = is_known, .ctx = root};
	struct en_limits_options lo = {.library = library, .smi = c->smi};
	struct en_mps_options mo = {.control = c->control,
				    .pipe_dir = c->pipe_dir,
				    .log_dir = c->log_dir,
				    .run_dir = c->run_dir,
				    .proc = proc};
	int r;

	snprintf(proc, sizeof(proc), "%s/proc", c->root);
	snprintf(root, sizeof(root), "%s", c->root);
	p->probe = calloc(1, sizeof(*p->probe));
	p->containers = calloc(CONTAINERS_MAX, sizeof(*p->containers));
	p->report = calloc(1, sizeof(*p->report));
	if (p->probe == NULL || p->containers == NULL || p->report == NULL)
		return err_set(err, ERR_NOMEM, "out of memory");
	r = en_prober_new(&po, &p->prober, err);
	if (r == 0)
		r = en_prober_run(p->prober, p->probe, err);
	if (r == 0)
		r = en_limits_new(&lo, &p->limits, err);
	mo.legacy = p->probe->driver_ok && (p->probe->features & EN_FEATURE_MPS_V3) == 0;
	if (r == 0)
		r = en_mps_new(&mo, &p->mps, err);
	return r;
}

static int run(const struct command *c, struct buf *out, struct err *err)
{
	char mount[EN_CGROUP_CAP];
	struct parts p = {0};
	struct en_doctor_env env = {.root = c->root,
				    .control = c->control,
				    .smi = c->smi,
				    .pipe_dir = c->pipe_dir,
				    .log_dir = c->log_dir,
				    .run_dir = c->run_dir,
				    .nri_socket = c->nri,
				    .kubelet_socket = c->kubelet};
	int r = prepare(c, &p, err);

	if (r == 0) {
		size_t n;

		env.cgroup_mount = en_doctor_cgroup_mount(c->root, mount);
		n = en_doctor_scan(c->root, mount, p.containers, CONTAINERS_MAX);
		env.probe = p.probe;
		env.mps = p.mps;
		env.limits = en_limits_ops(p.limits);
		env.containers = p.containers;
		env.container_count = n < CONTAINERS_MAX ? n : CONTAINERS_MAX;
		en_doctor_run(&env, p.report);
		if (c->json)
			r = en_doctor_json(p.report, out, err);
		else
			en_doctor_print(p.report, c->verbose, out);
		if (r == 0)
			r = p.report->failures > 0 ? 1 : 0;
	}
	parts_fini(&p);
	return r;
}

int en_doctor_main(int argc, char *const *argv, int out_fd)
{
	struct command c = {0};
	struct buf out = BUF_INIT;
	struct err err = ERR_INIT;
	int r = parse(argc, argv, &c, &err);

	if (r == 0 && c.help)
		put_help(&out);
	else if (r == 0)
		r = run(&c, &out, &err);
	if (r < 0) {
		fprintf(stderr, "tessera-enforcer doctor: %s\n", err.msg);
		r = err_exit_status(r);
	}
	if (!buf_ok(&out) || file_write_all(out_fd, out.data, out.len) != 0)
		r = 1;
	buf_fini(&out);
	return r;
}
