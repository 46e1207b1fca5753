#include "extender/verbs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEEP_NAMES 20000 /* scratch memory for more is not kept */

int ex_scratch_init(struct ex_scratch *x, struct err *err)
{
	*x = (struct ex_scratch){0};
	x->arena = ku_arena_new();
	return x->arena != NULL ? 0 : err_set(err, ERR_NOMEM, "out of memory");
}

void ex_scratch_fini(struct ex_scratch *x)
{
	ex_names_fini(&x->names);
	ex_items_fini(&x->items);
	ex_verdicts_fini(&x->verdicts);
	ku_arena_free(x->arena);
	x->arena = NULL;
}

void ex_scratch_trim(struct ex_scratch *x)
{
	if (x->arena != NULL)
		ku_arena_reset(x->arena);
	if (x->names.cap > KEEP_NAMES) {
		ex_names_fini(&x->names);
		ex_items_fini(&x->items);
		ex_verdicts_fini(&x->verdicts);
	}
}

static void tally(struct ex_scratch *x)
{
	memset(x->tally, 0, sizeof(x->tally));
	for (size_t i = 0; i < x->verdicts.count; i++)
		x->tally[x->verdicts.code[i]]++;
}

/* Reads ExtenderArgs and judges its nodes; *ret_nodes: in nodes mode. */
static int judge(struct ex_service *s, struct ex_scratch *x, const char *body, size_t len,
		 bool *ret_nodes, struct err *err)
{
	struct ex_question q;
	struct ex_body parts;
	int rc;

	ku_arena_reset(x->arena);
	rc = ex_scan_body(body, len, &parts, &x->names, err);
	if (rc < 0)
		return rc;
	/* The scheduler sends one of the two; its form decides, whatever we were configured for. */
	*ret_nodes = parts.node_names.at == NULL && parts.nodes.at != NULL;
	if (parts.node_names.at == NULL && parts.nodes.at == NULL)
		return err_set(err, ERR_INVALID, "neither NodeNames nor Nodes is given");
	if (*ret_nodes)
		rc = ex_scan_nodes(parts.nodes, &x->names, &x->items, err);
	if (rc == 0)
		rc = ex_question_read(s, parts.pod, x->arena, &q, err);
	if (rc < 0)
		return rc;
	x->pod = q.ident;
	rc = ex_service_judge(s, &q, &x->names, *ret_nodes ? &x->items : NULL, x->arena,
			      &x->verdicts, err);
	if (rc == 0)
		tally(x);
	return rc;
}

int ex_verb_filter(struct ex_service *s, struct ex_scratch *x, const char *body, size_t len,
		   struct buf *out, struct err *err)
{
	bool nodes;
	int rc;

	memset(x->tally, 0, sizeof(x->tally));
	rc = judge(s, x, body, len, &nodes, err);
	if (rc < 0) {
		ex_wire_filter_error(out, err->msg);
		return rc;
	}
	ex_wire_filter(out, &x->names, nodes ? &x->items : NULL, &x->verdicts);
	return 0;
}

void ex_verb_filter_tell(const struct ex_scratch *x, struct log *log)
{
	char causes[400] = "";
	size_t len = 0;

	if (x->tally[EX_OK] > 0 || x->verdicts.count == 0)
		return;
	for (int code = 0; code < EX_CODE_COUNT && len < sizeof(causes); code++) {
		if (x->tally[code] > 0)
			len += (size_t)snprintf(causes + len, sizeof(causes) - len, " %s=%u",
						ex_code_name((enum ex_code)code), x->tally[code]);
	}
	if (len > 0)
		log_event(log, LOG_LEVEL_DEBUG, "no-node-passes", "pod=%s/%s uid=%s nodes=%zu%s",
			  x->pod.ns, x->pod.name, x->pod.uid, x->verdicts.count, causes);
}

int ex_verb_prioritize(struct ex_service *s, struct ex_scratch *x, const char *body, size_t len,
		       unsigned rest, struct buf *out, struct err *err)
{
	bool nodes;
	int rc;

	rc = judge(s, x, body, len, &nodes, err);
	if (rc < 0)
		buf_puts(out, "[]");
	else
		ex_wire_prioritize(out, &x->names, &x->verdicts, rest);
	return rc;
}

int ex_verb_preempt(struct ex_service *s, struct ex_scratch *x, const char *body, size_t len,
		    struct buf *out, struct err *err)
{
	struct ex_preemption p = {0};
	struct ex_question q;
	struct ex_body parts;
	int rc;

	ku_arena_reset(x->arena);
	rc = ex_scan_body(body, len, &parts, &x->names, err);
	if (rc == 0)
		rc = ex_question_read(s, parts.pod, x->arena, &q, err);
	if (rc == 0)
		rc = ex_wire_preempt_parse(&parts, &p, err);
	if (rc == 0)
		rc = ex_service_preempt(s, &q, &p, err);
	if (rc < 0)
		ex_preemption_fini(&p);
	ex_wire_preempt(out, &p, rc < 0 ? err->msg : "");
	ex_preemption_fini(&p);
	return rc;
}

int ex_verb_bind(struct ex_service *s, const char *body, size_t len, struct buf *out,
		 struct err *err)
{
	struct ex_bind_args args = {0};
	int rc;

	rc = ex_wire_bind_parse(body, len, &args, err);
	if (rc == 0)
		rc = ex_service_bind_now(s, &args, err);
	ex_wire_bind(out, rc < 0 ? err->msg : "");
	ex_bind_args_fini(&args);
	return rc;
}

int ex_release_parse(const char *body, size_t len, char **ret, struct err *err)
{
	const cJSON *uid;
	cJSON *root = NULL;
	int rc;

	rc = ku_json_parse(body, len, &root, err);
	if (rc < 0)
		return rc;
	uid = cJSON_GetObjectItemCaseSensitive(root, "uid");
	if (!cJSON_IsString(uid) || uid->valuestring[0] == '\0') {
		rc = err_set(err, ERR_INVALID, "uid: a string is needed");
	} else {
		*ret = strdup(uid->valuestring);
		rc = *ret != NULL ? 0 : err_set(err, ERR_NOMEM, "out of memory");
	}
	cJSON_Delete(root);
	return rc;
}
