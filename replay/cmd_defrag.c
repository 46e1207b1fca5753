#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/quantity.h"
#include "replay/command.h"
#include "replay/defrag.h"
#include "replay/trace.h"

struct args {
	const char *cluster_path, *for_text, *policy_text;
	int64_t nodes;
	bool json, kubectl, quiet;
	const struct po_policy *policy;
	struct st_request req;
};

/* ---- the request: "cpu=8,memory=32Gi,gpus=2,fraction=0.5,..." ---- */

struct wanted {
	char cpu[32], memory[32], gpus[32], fraction[32], gpu_memory[32], mode[32], mig[32];
	char product[ST_PRODUCT_CAP];
};

static int split(const char *text, struct wanted *w, struct err *err)
{
	const struct {
		const char *name;
		char *dst;
		size_t cap;
	} fields[] = {
		{"cpu", w->cpu, sizeof(w->cpu)},
		{"memory", w->memory, sizeof(w->memory)},
		{"gpus", w->gpus, sizeof(w->gpus)},
		{"fraction", w->fraction, sizeof(w->fraction)},
		{"gpu-memory", w->gpu_memory, sizeof(w->gpu_memory)},
		{"mode", w->mode, sizeof(w->mode)},
		{"mig", w->mig, ST_MIG_NAME_CAP},
		{"product", w->product, sizeof(w->product)},
	};

	for (const char *s = text;;) {
		size_t len = strcspn(s, ","), i = 0;
		const char *eq = memchr(s, '=', len);

		for (; eq != NULL && i < sizeof(fields) / sizeof(fields[0]); i++)
			if (strlen(fields[i].name) == (size_t)(eq - s) &&
			    memcmp(fields[i].name, s, (size_t)(eq - s)) == 0)
				break;
		if (eq == NULL || i == sizeof(fields) / sizeof(fields[0]))
			return err_set(err, ERR_INVALID,
				       "--for: \"%.*s\" is not of the form field=value",
				       len < 80 ? (int)len : 80, s);
		len -= (size_t)(eq + 1 - s);
		if (len == 0 || len >= fields[i].cap)
			return err_set(err, ERR_INVALID, "--for: %s: empty or too long",
				       fields[i].name);
		memcpy(fields[i].dst, eq + 1, len);
		fields[i].dst[len] = '\0';
		s = eq + 1 + len;
		if (*s == '\0')
			return 0;
		s++;
	}
}

static int share(const struct wanted *w, struct st_item *it, struct err *err)
{
	int64_t v = 0;
	int mode = w->mode[0] != '\0' ? st_mode_parse(w->mode) : ST_MODE_TIME_SLICING, rc;

	if (mode != ST_MODE_TIME_SLICING && mode != ST_MODE_SM_SHARING)
		return err_set(err, ERR_INVALID,
			       "--for: mode: \"%s\" is not time-slicing or sm-sharing", w->mode);
	it->kind = ST_KIND_SHARE;
	it->mode = (enum st_mode)mode;
	if (w->fraction[0] != '\0') {
		rc = decimal_parse_nano(w->fraction, &v, err);
		if (rc == 0 && (v < 1 || v >= ST_NANO))
			rc = err_set(err, ERR_RANGE, "\"%s\" is not between 0 and 1", w->fraction);
		it->request_nano = (int32_t)v;
		return rc < 0 ? err_prefix(err, rc, "--for: fraction") : 0;
	}
	rc = quantity_parse(w->gpu_memory, QUANTITY_MI, &v, err);
	if (rc == 0 && (v < 1 || v > 1 << 24))
		rc = err_set(err, ERR_RANGE, "\"%s\" is not between 1Mi and 16Ti", w->gpu_memory);
	it->request_mib = (int32_t)v;
	return rc < 0 ? err_prefix(err, rc, "--for: gpu-memory") : 0;
}

static int parse_request(const char *text, struct st_request *req, struct err *err)
{
	struct wanted w = {.cpu = ""};
	struct st_item *it = &req->items[0];
	bool part;
	int64_t n = 1;
	int rc = split(text, &w, err);

	memset(req, 0, sizeof(*req));
	if (rc < 0)
		return rc;
	if (w.cpu[0] != '\0' &&
	    (rc = quantity_parse(w.cpu, QUANTITY_MILLI, &req->cpu_milli, err)) < 0)
		return err_prefix(err, rc, "--for: cpu");
	if (w.memory[0] != '\0' &&
	    (rc = quantity_parse(w.memory, QUANTITY_MI, &req->mem_mib, err)) < 0)
		return err_prefix(err, rc, "--for: memory");
	if (w.gpus[0] != '\0' && (rc = integer_parse(w.gpus, 1, ST_GPUS_MAX, &n, err)) < 0)
		return err_prefix(err, rc, "--for: gpus");
	part = w.fraction[0] != '\0' || w.gpu_memory[0] != '\0';
	if ((w.fraction[0] != '\0') + (w.gpu_memory[0] != '\0') + (w.mig[0] != '\0') > 1)
		return err_set(err, ERR_INVALID, "--for: one of fraction, gpu-memory and mig");
	if (w.mode[0] != '\0' && !part)
		return err_set(err, ERR_INVALID, "--for: mode wants fraction or gpu-memory");
	memcpy(req->product, w.product, sizeof(req->product));
	req->item_count = 1;
	memcpy(it->container, RP_CONTAINER, sizeof(RP_CONTAINER));
	it->count = (uint8_t)n;
	if (part)
		return share(&w, it, err);
	it->kind = w.mig[0] != '\0' ? ST_KIND_MIG : ST_KIND_WHOLE;
	it->mode = w.mig[0] != '\0' ? ST_MODE_MIG : ST_MODE_EXCLUSIVE;
	memcpy(it->profile, w.mig, sizeof(it->profile));
	return 0;
}

/* ---- output ---- */

static int print(const struct args *a, const struct st_cluster *c, const struct rp_moves *m,
		 struct err *err)
{
	struct buf b = BUF_INIT;
	struct rp_defrag_notes n;
	char *text = NULL;
	int rc = rp_defrag_notes_init(&n, c, a->for_text != NULL, err);

	if (rc == 0 && a->json) {
		text = rp_moves_json(c, m, &n);
		if (text == NULL)
			rc = err_set(err, ERR_NOMEM, "out of memory");
		else
			puts(text);
	} else if (rc == 0) {
		if (a->kubectl)
			rp_moves_kubectl(&b, c, m, &n);
		else
			rp_moves_text(&b, c, m, &n);
		rc = rp_write_file("-", &b, err);
	}
	free(text);
	buf_fini(&b);
	rp_defrag_notes_fini(&n);
	return rc;
}

/* A product that no node has is a slip of the pen, not a lack of room. */
static int check_product(const struct st_cluster *c, const struct st_request *req, struct err *err)
{
	const struct strpool *products = st_cluster_products(c);
	char names[256] = "";
	uint32_t i = 0;

	for (; req->product[0] != '\0' && i < strpool_count(products); i++) {
		const char *name = strpool_str(products, i);
		size_t used = strlen(names);

		if (st_product_accepts(req->product, name))
			return 0;
		snprintf(names + used, sizeof(names) - used, "%s%s", i > 0 ? ", " : "", name);
	}
	if (req->product[0] == '\0')
		return 0;
	return err_set(err, ERR_INVALID, "--for: no node has product \"%s\" (there are: %s)",
		       req->product, i > 0 ? names : "none");
}

/* What could not be done may be for the sake of pods that nobody asked to stay. */
static void blame_fixed(const struct st_cluster *c, int rc, struct err *err)
{
	struct rp_defrag_notes n;
	struct err why = *err;

	if (rp_defrag_notes_init(&n, c, true, &why) == 0 && n.fixed > 0)
		err_set(err, rc,
			"%.300s (pods without a tessera allocation are taken as fixed: %zu)",
			why.msg, n.fixed);
	rp_defrag_notes_fini(&n);
}

/* The workload that the measure expects: what is placed now. */
static int learn(struct po_placer *p, const struct rp_trace *t, struct err *err)
{
	for (size_t i = 0; i < t->pod_count; i++) {
		int rc = po_placer_learn(p, &t->shapes[t->pods[i]].req, err);

		if (rc < 0)
			return rc;
	}
	return po_placer_rebuild(p, err);
}

static int defrag(const struct args *a, const struct rp_trace *t)
{
	struct po_options opt = {.policy = a->policy};
	struct st_cluster *c = NULL;
	struct po_placer *p = NULL;
	struct rp_moves m = {0};
	struct err err = ERR_INIT;
	int rc = rp_trace_cluster(t, NULL, &c, &err), status;

	if (rc == 0)
		rc = check_product(c, &a->req, &err);
	if (rc == 0) {
		p = po_placer_new(c, &opt);
		rc = p != NULL ? learn(p, t, &err) : err_set(&err, ERR_NOMEM, "out of memory");
	}
	if (rc == 0)
		rc = a->for_text != NULL ? rp_defrag_room(c, p, &a->req, &m, &err)
					 : rp_defrag_nodes(c, p, (size_t)a->nodes, &m, &err);
	if (rc < 0) {
		/* What can be done is told all the same. */
		struct err ignored = ERR_INIT;

		if (rc == ERR_NO_ROOM && a->for_text == NULL)
			print(a, c, &m, &ignored);
		else if (rc == ERR_NO_ROOM)
			blame_fixed(c, rc, &err);
		status = rp_command_failed(rc, &err);
	} else {
		status = rp_command_end(print(a, c, &m, &err), &err);
	}
	rp_moves_fini(&m);
	po_placer_free(p);
	st_cluster_free(c);
	return status;
}

static int parse(struct args *a, struct err *err)
{
	const struct po_policy *list[RP_POLICIES_MAX];
	size_t count = 0;
	int rc = rp_policies_parse(a->policy_text, list, &count, err);

	if (rc == 0 && count != 1)
		rc = err_set(err, ERR_INVALID, "--policy: one policy");
	if (rc < 0)
		return rc;
	a->policy = list[0];
	if (a->cluster_path == NULL)
		return err_set(err, ERR_INVALID, "--cluster is missing");
	if ((a->for_text != NULL) == (a->nodes > 0))
		return err_set(err, ERR_INVALID, "one of --for and --free-nodes is wanted");
	if (a->json && a->kubectl)
		return err_set(err, ERR_INVALID, "one of --json and --kubectl");
	return a->for_text != NULL ? parse_request(a->for_text, &a->req, err) : 0;
}

int rp_cmd_defrag(const struct rp_command *self, int argc, char **argv)
{
	static struct args a;
	const struct rp_option options[] = {
		{"cluster", "FILE", RP_OPT_TEXT, &a.cluster_path, 0, 0,
		 "the cluster as kubectl get nodes,pods -A -o json prints it; a pod without a tessera\n"
		 "allocation (device plugin) is taken as fixed"},
		{"for", "FIELDS", RP_OPT_TEXT, &a.for_text, 0, 0,
		 "make room for a pod: cpu=8,memory=32Gi,gpus=2 and, where wanted, one of\n"
		 "fraction=0.5, gpu-memory=10Gi (with mode=sm-sharing), mig=1g.10gb; product=A|B"},
		{"free-nodes", "N", RP_OPT_INTEGER, &a.nodes, 1, 100000,
		 "or empty N more nodes of all pods with GPUs, beside those that are empty already"},
		{"policy", "NAME", RP_OPT_TEXT, &a.policy_text, 0, 0,
		 "where moved pods are expected to go; ca-fgd; the extender's own, bid-price, takes several times as long"},
		{"kubectl", NULL, RP_OPT_FLAG, &a.kubectl, 0, 0,
		 "print a script of kubectl commands; nothing is ever run"},
		{"json", NULL, RP_OPT_FLAG, &a.json, 0, 0, "print an object, no table"},
		{"quiet", NULL, RP_OPT_FLAG, &a.quiet, 0, 0, "no warnings"},
	};
	struct err err = ERR_INIT;
	struct rp_trace t;
	int status, rc;

	a = (struct args){0};
	if (!rp_command_options(self, options, sizeof(options) / sizeof(options[0]), argc, argv,
				&status))
		return status;
	rc = parse(&a, &err);
	if (rc < 0)
		return rp_command_failed(rc, &err);
	rp_trace_init(&t);
	rc = rp_trace_load_cluster(&t, a.cluster_path, rp_command_note, &a.quiet, &err);
	status = rc < 0 ? rp_command_failed(rc, &err) : defrag(&a, &t);
	rp_trace_fini(&t);
	return status;
}
