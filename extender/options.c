#include "extender/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/option_table.h"
#include "extender/options_file.h"
#include "policy/policy.h"
#include "state/contract.h"

#define AT(field) offsetof(struct ex_options, field)

static const struct option_row rows[] = {
	{"cluster", "FILE", "TESSERA_CLUSTER", NULL,
	 "Nodes and pods, as `kubectl get nodes,pods -A -o json` prints them; - reads standard input. "
	 "This, --kubeconfig or --in-cluster is required.",
	 OPTION_TEXT, AT(cluster), 0, 0, false},
	{"kubeconfig", "FILE", "TESSERA_KUBECONFIG", NULL,
	 "Work on the API server of this file: list and watch nodes and pods, bind there.",
	 OPTION_TEXT, AT(kubeconfig), 0, 0, false},
	{"context", "NAME", "TESSERA_CONTEXT", NULL,
	 "Context of the kubeconfig file; its current-context where this is not given.",
	 OPTION_TEXT, AT(context), 0, 0, false},
	{"in-cluster", NULL, "TESSERA_IN_CLUSTER", "no",
	 "Work on the API server of the cluster that this runs in, as its service account.",
	 OPTION_FLAG, AT(in_cluster), 0, 0, false},
	{"leader-elect", "yes|no", "TESSERA_LEADER_ELECT", "yes",
	 "Answer only while holding the lease. Without it there must never be two replicas.",
	 OPTION_YES_NO, AT(leader_elect), 0, 0, false},
	{"lease-namespace", "NS", "TESSERA_LEASE_NAMESPACE", NULL,
	 "Namespace of the lease; in a cluster our own, else kube-system.", OPTION_TEXT,
	 AT(lease_namespace), 0, 0, false},
	{"lease-name", "NAME", "TESSERA_LEASE_NAME", "tessera-extender", "Name of the lease.",
	 OPTION_TEXT, AT(lease_name), 0, 0, false},
	{"identity", "NAME", "TESSERA_IDENTITY", NULL,
	 "Who we are in the lease: of this process only. Host name and a random number otherwise.",
	 OPTION_TEXT, AT(identity), 0, 0, false},
	{"lease-seconds", "N", "TESSERA_LEASE_SECONDS", "15",
	 "A replica that did not renew for so long may be replaced.", OPTION_INTEGER, AT(lease_s),
	 2, 3600, false},
	{"renew-seconds", "N", "TESSERA_RENEW_SECONDS", "10",
	 "Stop leading when the lease could not be renewed for so long.", OPTION_INTEGER,
	 AT(renew_s), 1, 3600, false},
	{"retry-seconds", "N", "TESSERA_RETRY_SECONDS", "2", "Between two looks at the lease.",
	 OPTION_INTEGER, AT(retry_s), 1, 3600, false},
	{"bind-timeout", "MS", "TESSERA_BIND_TIMEOUT", "4000",
	 "Answer a bind after so many milliseconds at the latest: a second less than the "
	 "scheduler's httpTimeout.",
	 OPTION_INTEGER, AT(bind_ms), 100, 600000, false},
	{"watch-silence", "SECONDS", "TESSERA_WATCH_SILENCE", "150",
	 "A watch without a byte for so long is dead, and begun again. API servers send something "
	 "each minute.",
	 OPTION_INTEGER, AT(silence_s), 1, 3600, false},
	{"node-totals", "yes|no", "TESSERA_NODE_TOTALS", "yes",
	 "Write each node's GPU memory to its status as tessera.dev/gpu-memory (MiB), where it "
	 "differs.",
	 OPTION_YES_NO, AT(node_totals), 0, 0, false},
	{"tls-cert", "FILE", "TESSERA_TLS_CERT", NULL,
	 "Serve HTTPS with this certificate (PEM, with its chain); serves /validate and /mutate to the "
	 "API server. Read again at SIGHUP.",
	 OPTION_TEXT, AT(tls_cert), 0, 0, false},
	{"tls-key", "FILE", "TESSERA_TLS_KEY", NULL, "Its key. Read again at SIGHUP.", OPTION_TEXT,
	 AT(tls_key), 0, 0, false},
	{"tls-client-ca", "FILE", "TESSERA_TLS_CLIENT_CA", NULL,
	 "The scheduler's verbs and releases take a client certificate of this authority (PEM); the "
	 "other paths need none.",
	 OPTION_TEXT, AT(tls_client_ca), 0, 0, false},
	{"set-scheduler", "labelled|all|none", "TESSERA_SET_SCHEDULER", "labelled",
	 "To which GPU pods of default-scheduler /mutate gives --set-scheduler-name: those with the "
	 "label tessera.dev/scheduler=enabled and those in a namespace with it, all, or none. A pod "
	 "labelled disabled is always left.",
	 OPTION_TEXT, AT(set_scheduler), 0, 0, false},
	{"set-scheduler-name", "NAME", "TESSERA_SET_SCHEDULER_NAME", "tessera",
	 "The schedulerName that /mutate sets.", OPTION_TEXT, AT(scheduler_name), 0, 0, false},
	{"privileged", "warn|refuse", "TESSERA_PRIVILEGED", "warn",
	 "What /validate does with a GPU pod that has a privileged container, which can use every GPU of "
	 "its node whatever it is given.",
	 OPTION_TEXT, AT(privileged), 0, 0, false},
	{"listen", "ADDR:PORT", "TESSERA_LISTEN", "127.0.0.1:8080",
	 "Where to serve HTTP; [ADDR]:PORT for IPv6; port 0 takes a free one and prints it.",
	 OPTION_TEXT, AT(listen), 0, 0, false},
	{"journal", "FILE", "TESSERA_JOURNAL", NULL,
	 "Record binds and releases in this file and replay it at start; without it they last as long "
	 "as the process. About 1 KB a bind; from 64 MiB on it is written anew, by way of FILE.new, "
	 "without pods that were released, but for the newest 16 MiB. Not to be moved, rotated or "
	 "written by others while in use; an old copy forgets what came later.",
	 OPTION_TEXT, AT(journal), 0, 0, false},
	{"journal-sync", "yes|no", "TESSERA_JOURNAL_SYNC", "yes",
	 "Answer a bind only when its record is on the disk (one fdatasync for all binds that wait).",
	 OPTION_YES_NO, AT(journal_sync), 0, 0, false},
	{"policy", "NAME", "TESSERA_POLICY", "bid-price",
	 "How nodes and GPUs are chosen; --help lists the policies.", OPTION_TEXT, AT(policy), 0, 0,
	 false},
	{"threads", "N", "TESSERA_THREADS", "4", "Threads that serve HTTP.", OPTION_INTEGER,
	 AT(threads), 1, 256, false},
	{"max-body", "BYTES", "TESSERA_MAX_BODY", "64Mi",
	 "Largest request body; a larger one is refused in the reply's Error.", OPTION_BYTES,
	 AT(max_body), 1024, INT64_C(1) << 32, false},
	{"reserve-mib", "N", "TESSERA_RESERVE_MIB", "0",
	 "MiB of every GPU that are never given away.", OPTION_INTEGER, AT(reserve_mib), 0,
	 INT32_MAX, false},
	{"clients-max", "N", "TESSERA_CLIENTS_MAX", "60",
	 "Containers that may share one GPU: 60, or 48 on older drivers.", OPTION_INTEGER,
	 AT(clients_max), 1, 60000, false},
	{"limit-overcommit", "R", "TESSERA_LIMIT_OVERCOMMIT", "1",
	 "Sum of memory limits on a GPU, as a multiple of its allocatable memory, 1 to 100.",
	 OPTION_RATIO, AT(overcommit_permille), 1000, 100000, false},
	{"hami", NULL, "TESSERA_HAMI", "no",
	 "Understand nvidia.com/gpumem, gpumem-percentage and gpucores too.", OPTION_FLAG, AT(hami),
	 0, 0, false},
	{"mig-isolation", NULL, "TESSERA_MIG_ISOLATION", "no",
	 "Serve shares of pods with tessera.dev/isolation: hardware by MIG instances; such pods are "
	 "refused otherwise.",
	 OPTION_FLAG, AT(mig_isolation), 0, 0, false},
	{"mig-switch", "yes|no", "TESSERA_MIG_SWITCH", "yes",
	 "Place MIG instances on idle GPUs whose node says that it may switch them into MIG mode, too.",
	 OPTION_YES_NO, AT(mig_switch), 0, 0, false},
	{"cdi", NULL, "TESSERA_CDI", "no", "Write devices as CDI names.", OPTION_FLAG, AT(cdi), 0,
	 0, false},
	{"prefix", "P", "TESSERA_PREFIX", "nvidia.com/container.",
	 "Start of the annotation keys of a container.", OPTION_TEXT, AT(prefix), 0, 0, false},
	{"popularity", "PERCENT", "TESSERA_POPULARITY", "95",
	 "Part of the pods seen whose classes make up the workload that fragmentation is measured for.",
	 OPTION_INTEGER, AT(popularity), 1, 100, false},
	{"seed", "N", "TESSERA_SEED", "1", "Seed of random policies and random ties.",
	 OPTION_INTEGER, AT(seed), 0, INT64_MAX, false},
	{"ties", "rank|random", "TESSERA_TIES", "rank",
	 "Which of equally good nodes wins: the first in a fixed order, or one drawn per pod.",
	 OPTION_TEXT, AT(ties), 0, 0, false},
	{"score-rest", "N", "TESSERA_SCORE_REST", "0",
	 "Highest prioritize score of a node that is not the best (which has 10), 0 to 9. 0 keeps the "
	 "choice against other score plugins from a weight of 13 on, 9 from 121 on.",
	 OPTION_INTEGER, AT(score_rest), 0, 9, false},
	{"pods-cache", "N", "TESSERA_PODS_CACHE", "16384",
	 "Pods seen by filter whose request is kept for their bind.", OPTION_INTEGER,
	 AT(pods_cache), 16, 10000000, false},
	{"nomination-seconds", "N", "TESSERA_NOMINATION_SECONDS", "600",
	 "Room made by preemption is kept for its pod until it was not heard of for so long.",
	 OPTION_INTEGER, AT(nomination_s), 1, 86400, false},
	{"log-level", "error|warn|info|debug", "TESSERA_LOG_LEVEL", "info",
	 "What is logged: this and what is worse.", OPTION_TEXT, AT(log_level), 0, 0, true},
	{"config", "FILE", "TESSERA_CONFIG", NULL,
	 "YAML file with lines `option: value`. Read again at SIGHUP, when log-level and the contents "
	 "of TLS files take effect.",
	 OPTION_TEXT, AT(config), 0, 0, false},
	{"check-config", NULL, NULL, NULL,
	 "Look at options and files as a start would, and whether the address of --listen is one of this "
	 "machine, say what is wrong, and exit. Nothing is written, no server asked, and not tried whether "
	 "the port is free and the journal not in use.",
	 OPTION_FLAG, AT(check_config), 0, 0, false},
	{"help", NULL, NULL, NULL, "Print this and exit.", OPTION_FLAG, AT(help), 0, 0, false},
	{"version", NULL, NULL, NULL, "Print the version and exit.", OPTION_FLAG, AT(version), 0, 0,
	 false},
};

#define ROWS (sizeof(rows) / sizeof(rows[0]))

static const struct option_table table = {
	rows, ROWS,
	"is no option, and no option before it takes a value; switches are --NAME or --NAME=no; see --help"};

/* A Kubernetes name: of letters, digits and '-', between them '.' where dots is true. */
static int check_name(const char *option, const char *name, bool dots, struct err *err)
{
	size_t len = strlen(name), max = dots ? 253 : 63;
	bool right = len <= max;

	for (size_t i = 0; right && i < len; i++) {
		bool edge = i == 0 || i + 1 == len;

		right = (name[i] >= 'a' && name[i] <= 'z') || (name[i] >= '0' && name[i] <= '9') ||
			(!edge && (name[i] == '-' || (dots && name[i] == '.')));
	}
	return right && len > 0 ? 0
				: err_set(err, ERR_INVALID,
					  "--%s: \"%.100s\" is no name of at most %zu lower-case "
					  "letters, digits%s and '-'",
					  option, name, max, dots ? ", '.'" : "");
}

static int check_lease(const struct ex_options *o, struct err *err)
{
	int rc = check_name("lease-name", o->lease_name, true, err);

	if (rc == 0 && o->lease_namespace[0] != '\0')
		rc = check_name("lease-namespace", o->lease_namespace, false, err);
	if (rc < 0)
		return rc;
	if (strlen(o->identity) > EX_IDENTITY_MAX)
		return err_set(err, ERR_INVALID, "--identity: \"%.40s...\" is longer than %d bytes",
			       o->identity, EX_IDENTITY_MAX);
	for (const char *p = o->identity; *p != '\0'; p++) {
		if ((unsigned char)*p <= ' ' || (unsigned char)*p >= 0x7f)
			return err_set(
				err, ERR_INVALID,
				"--identity: \"%s\" holds a blank or what is not plain ASCII",
				o->identity);
	}
	return 0;
}

static int check_source(const struct ex_options *o, struct err *err)
{
	int sources = (o->cluster[0] != '\0') + (o->kubeconfig[0] != '\0') + o->in_cluster;

	if (sources == 0)
		return err_set(
			err, ERR_INVALID,
			"--cluster FILE is required, or --kubeconfig FILE or --in-cluster; see "
			"--help");
	if (sources > 1)
		return err_set(err, ERR_INVALID,
			       "only one of --cluster, --kubeconfig and --in-cluster can be given");
	if (o->cluster[0] == '\0' && o->journal[0] != '\0')
		return err_set(err, ERR_INVALID, "--journal goes with --cluster only");
	if (o->context[0] != '\0' && o->kubeconfig[0] == '\0')
		return err_set(err, ERR_INVALID, "--context goes with --kubeconfig only");
	if (o->cluster[0] == '\0' && o->leader_elect &&
	    (o->renew_s >= o->lease_s || o->retry_s * 6 / 5 >= o->renew_s))
		return err_set(
			err, ERR_INVALID,
			"--retry-seconds %lld, --renew-seconds %lld, --lease-seconds %lld: each "
			"must be less than the next, the first by a fifth",
			(long long)o->retry_s, (long long)o->renew_s, (long long)o->lease_s);
	return 0;
}

static int check_tls(const struct ex_options *o, struct err *err)
{
	if ((o->tls_cert[0] == '\0') != (o->tls_key[0] == '\0'))
		return err_set(err, ERR_INVALID, "--tls-cert and --tls-key go together");
	if (o->tls_client_ca[0] != '\0' && o->tls_cert[0] == '\0')
		return err_set(err, ERR_INVALID, "--tls-client-ca needs --tls-cert and --tls-key");
	return 0;
}

int ex_options_set_scheduler(const struct ex_options *o)
{
	static const char *const words[] = {
		[EX_SET_NONE] = "none", [EX_SET_LABELLED] = "labelled", [EX_SET_ALL] = "all"};

	for (int i = 0; i < (int)(sizeof(words) / sizeof(words[0])); i++) {
		if (strcmp(o->set_scheduler, words[i]) == 0)
			return i;
	}
	return -1;
}

static int check(const struct ex_options *o, struct err *err)
{
	int rc = check_source(o, err);

	if (rc == 0)
		rc = check_tls(o, err);
	if (rc == 0)
		rc = check_lease(o, err);
	if (rc < 0)
		return rc;
	if (o->scheduler_name[0] == '\0')
		return err_set(err, ERR_INVALID,
			       "--set-scheduler-name: is empty; --set-scheduler=none sets none");
	rc = st_contract_prefix_check(o->prefix, err);
	return rc < 0 ? err_prefix(err, rc, "--prefix") : 0;
}

static const struct ex_options empty = {
	.cluster = "",
	.listen = "",
	.journal = "",
	.policy = "",
	.prefix = "",
	.ties = "",
	.kubeconfig = "",
	.context = "",
	.lease_namespace = "",
	.lease_name = "",
	.identity = "",
	.config = "",
	.tls_cert = "",
	.tls_key = "",
	.tls_client_ca = "",
	.set_scheduler = "",
	.scheduler_name = "",
	.privileged = "",
};

/* where: the place that the policy's name may have come from. */
static int check_policy(const struct ex_options *o, struct err *err, const char *where)
{
	char names[256] = "";
	size_t len = 0;
	const struct po_policy *p;

	if (po_policy_find(o->policy) != NULL)
		return 0;
	for (size_t i = 0; (p = po_policy_at(i)) != NULL && len < sizeof(names); i++)
		len += (size_t)snprintf(names + len, sizeof(names) - len, "%s%s", i > 0 ? ", " : "",
					p->name);
	return err_set(err, ERR_INVALID, "%s: \"%.100s\" is none of %s", where, o->policy, names);
}

static int set_file(struct ex_options *o, const struct ex_options_file *f, struct err *err)
{
	int rc;

	for (size_t i = 0; i < f->count; i++) {
		const struct option_row *r = option_find(&table, f->names[i], strlen(f->names[i]));

		if (r == NULL || r->env == NULL || strcmp(r->name, "config") == 0)
			return err_set(err, ERR_INVALID, "%s: %s: no such option for a file",
				       o->config, f->names[i]);
		rc = option_set(r, o, f->values[i], err);
		if (rc < 0)
			return err_prefix(err, rc, "%s: %s", o->config, r->name);
	}
	rc = check_policy(o, err, "policy");
	return rc < 0 ? err_prefix(err, rc, "%s", o->config) : 0;
}

/* Reads all places; file NULL: none. */
static int set_all(struct ex_options *o, int argc, char *const *argv,
		   const char *(*getenv_fn)(const char *name), struct ex_options_file *file,
		   struct err *err)
{
	const char *path = o->config;
	int rc;

	*o = empty;
	o->file = file;
	rc = option_defaults(&table, o, err);
	o->config = path;
	if (rc == 0 && file != NULL)
		rc = set_file(o, file, err);
	if (rc == 0)
		rc = option_environment(&table, o, getenv_fn, err);
	if (rc == 0)
		rc = check_policy(o, err, "TESSERA_POLICY");
	if (rc == 0)
		rc = option_arguments(&table, o, 1, argc, argv, err);
	return rc == 0 ? check_policy(o, err, "--policy") : rc;
}

void ex_options_fini(struct ex_options *o)
{
	ex_options_file_free(o->file);
	o->file = NULL;
}

int ex_options_parse(int argc, char *const *argv, const char *(*getenv_fn)(const char *name),
		     struct ex_options *ret, struct err *err)
{
	struct ex_options o = empty;
	struct ex_options_file *file = NULL;
	int rc;

	rc = set_all(&o, argc, argv, getenv_fn, NULL, err);
	if (rc == 0 && o.config[0] != '\0' && !o.help && !o.version) {
		rc = ex_options_file_read(o.config, &file, err);
		if (rc < 0)
			err_prefix(err, rc, "--config");
		else
			rc = set_all(&o, argc, argv, getenv_fn, file, err);
	}
	if (rc == 0 && !o.help && !o.version)
		rc = check(&o, err);
	if (rc < 0)
		ex_options_file_free(file);
	else
		*ret = o;
	return rc;
}

static bool same(const struct option_row *r, const struct ex_options *a, const struct ex_options *b)
{
	const char *at_a = (const char *)a + r->offset, *at_b = (const char *)b + r->offset;
	const char *text_a, *text_b;

	if (r->kind == OPTION_FLAG || r->kind == OPTION_YES_NO)
		return *(const bool *)at_a == *(const bool *)at_b;
	if (r->kind != OPTION_TEXT)
		return memcmp(at_a, at_b, sizeof(int64_t)) == 0;
	memcpy(&text_a, at_a, sizeof(text_a));
	memcpy(&text_b, at_b, sizeof(text_b));
	return strcmp(text_a, text_b) == 0;
}

void ex_options_compare(const struct ex_options *a, const struct ex_options *b,
			void (*fn)(void *ctx, const char *name, bool live), void *ctx)
{
	for (size_t i = 0; i < ROWS; i++) {
		if (!same(&rows[i], a, b))
			fn(ctx, rows[i].name, rows[i].live);
	}
}

void ex_options_help(struct buf *b)
{
	const struct po_policy *p;

	buf_puts(b,
		 "usage: tessera-extender --cluster FILE | --kubeconfig FILE | --in-cluster\n"
		 "           [option...]\n\n"
		 "Answers a kube-scheduler's filter, prioritize, bind and preempt calls for\n"
		 "fractional, whole and MIG GPU requests, on the cluster of an API server or one\n"
		 "read from a file.\n\n");
	option_help(&table, b);
	buf_puts(b, "\nWhat has a variable in brackets can be in the file of --config, too, as\n"
		    "`max-body: 1Mi`. The command line wins, then the environment.\n\npolicies:\n");
	for (size_t i = 0; (p = po_policy_at(i)) != NULL; i++) {
		buf_printf(b, "  %-12s ", p->name);
		option_wrapped(b, p->help, 15, 15);
	}
	buf_puts(b, "\nexit status: 0; 2 wrong options, files or values; 1 all else that fails\n");
}

void ex_options_markdown(struct buf *b)
{
	option_markdown(&table, b);
}
