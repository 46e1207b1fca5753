#include "extender/wire.h"

#include <stdlib.h>
#include <string.h>

#include "extender/json.h"
#include "state/cluster.h"

/* ---- codes ---- */

static const struct {
	const char *name, *text;
	bool resolvable;
} codes[EX_CODE_COUNT] = {
	[EX_OK] = {.name = "ok"},
	[BP_NO_NODE] = {.name = "no_node"},
	[BP_NO_GPU] = {.name = "no_gpu"},
	[BP_PRODUCT] = {.name = "product"},
	[BP_TOO_LARGE] = {.name = "too_large"},
	[BP_TOO_MANY] = {.name = "too_many"},
	[BP_ONLY_MIG] = {.name = "only_mig"},
	[BP_NO_MIG] = {.name = "no_mig"},
	[BP_HOST_TOO_SMALL] = {.name = "host_too_small"},
	[BP_UNREADY] = {.name = "unready"},
	[BP_FENCED] = {.name = "fenced"},
	[BP_TAKEN] = {.name = "taken"},
	[BP_CPU] = {.name = "cpu"},
	[BP_HOST_MEMORY] = {.name = "host_memory"},
	[BP_PODS] = {.name = "pods"},
	[BP_MODE] = {.name = "mode"},
	[BP_MEMORY] = {.name = "memory"},
	[BP_CLIENTS] = {.name = "clients"},
	[BP_COMPUTE] = {.name = "compute"},
	[BP_LIMIT] = {.name = "limit"},
	[BP_NOT_IDLE] = {.name = "not_idle"},
	[BP_MIG_ROOM] = {.name = "mig_room"},
	[BP_TOO_FEW] = {.name = "too_few"},
	[BP_COMBINATION] = {.name = "combination"},
	[EX_REQUEST] = {"request", "the pod's GPU request is invalid", false},
	[EX_BOUND] = {"bound", "the pod is bound to another node", false},
	[EX_NODE_OBJECT] = {"node_object", "the node object cannot be read", false},
	[EX_NOMINATED] = {"nominated", "room is kept for a preempting pod of higher priority",
			  true},
	[EX_REPEATED] = {"repeated", "", true},
};

const char *ex_code_name(enum ex_code code)
{
	return codes[code].name != NULL ? codes[code].name : "other";
}

const char *ex_code_text(enum ex_code code)
{
	if (code == EX_OK)
		return "";
	return (int)code < (int)BP_VERDICT_COUNT ? bp_verdict_text((enum bp_verdict)code)
						 : codes[code].text;
}

bool ex_code_resolvable(enum ex_code code)
{
	return (int)code < (int)BP_VERDICT_COUNT ? bp_verdict_resolvable((enum bp_verdict)code)
						 : codes[code].resolvable;
}

/* ---- verdicts ---- */

void ex_verdicts_fini(struct ex_verdicts *v)
{
	free(v->code);
	free(v->key);
	free(v->node);
	free(v->text);
	buf_fini(&v->texts);
	*v = (struct ex_verdicts){0};
}

/* at points to the array's pointer, of any type. */
static bool grow(void *at, size_t count, size_t size)
{
	void *p;

	memcpy(&p, at, sizeof(p));
	p = reallocarray(p, count, size);
	if (p != NULL)
		memcpy(at, &p, sizeof(p));
	return p != NULL;
}

int ex_verdicts_reset(struct ex_verdicts *v, size_t count, struct err *err)
{
	size_t cap = count < 256 ? 256 : count;

	if (cap > v->cap) {
		v->cap = 0;
		if (!grow(&v->code, cap, sizeof(v->code[0])) ||
		    !grow(&v->key, cap, sizeof(v->key[0])) ||
		    !grow(&v->node, cap, sizeof(v->node[0])) ||
		    !grow(&v->text, cap, sizeof(v->text[0])))
			return err_set(err, ERR_NOMEM, "out of memory for %zu nodes", count);
		v->cap = cap;
	}
	v->count = count;
	memset(v->code, EX_NO_NODE, count);
	memset(v->key, 0, count * sizeof(v->key[0]));
	memset(v->node, 0xff, count * sizeof(v->node[0])); /* ST_NONE */
	memset(v->text, 0, count * sizeof(v->text[0]));
	buf_reset(&v->texts);
	buf_putc(&v->texts, ' '); /* offset 0 means none */
	return 0;
}

void ex_verdicts_set_text(struct ex_verdicts *v, size_t i, const char *text)
{
	size_t at = v->texts.len;

	ex_json_put_string(&v->texts, text, strlen(text));
	buf_putc(&v->texts, '\0');
	if (buf_ok(&v->texts) && at <= UINT32_MAX)
		v->text[i] = (uint32_t)at;
}

/* ---- filter ---- */

/* Pieces of a reply are first counted, then copied: one reservation, no test per piece. */
static inline char *copy(char *to, const void *from, size_t len)
{
	memcpy(to, from, len);
	return to + len;
}

#define COPY_LITERAL(to, text) copy(to, text, sizeof(text) - 1)

/* The reasons as JSON strings. */
struct reasons {
	struct buf text;
	size_t at[EX_CODE_COUNT], len[EX_CODE_COUNT];
};

static bool reasons_make(struct reasons *r, const struct ex_verdicts *v)
{
	bool used[EX_CODE_COUNT] = {false};
	const char *text;

	r->text = (struct buf)BUF_INIT;
	for (size_t i = 0; i < v->count; i++)
		used[v->code[i]] = true;
	for (int code = 0; code < EX_CODE_COUNT; code++) {
		if (!used[code])
			continue;
		text = ex_code_text((enum ex_code)code);
		r->at[code] = r->text.len;
		ex_json_put_string(&r->text, text, strlen(text));
		r->len[code] = r->text.len - r->at[code];
	}
	return buf_ok(&r->text);
}

static const char *reason_of(const struct reasons *r, const struct ex_verdicts *v, size_t i,
			     size_t *ret_len)
{
	const char *own;

	if (v->text[i] == 0) {
		*ret_len = r->len[v->code[i]];
		return r->text.data + r->at[v->code[i]];
	}
	own = v->texts.data + v->text[i];
	*ret_len = strlen(own);
	return own;
}

static size_t filter_size(const struct ex_names *names, const struct ex_items *items,
			  const struct ex_verdicts *v, const struct reasons *r)
{
	size_t size = 256, len;

	for (size_t i = 0; i < v->count; i++) {
		if (v->code[i] == EX_OK) {
			size += (items != NULL ? items->v[i].len : names->v[i].raw_len) + 1;
		} else if (v->code[i] != EX_REPEATED) {
			reason_of(r, v, i, &len);
			size += names->v[i].raw_len + len + 2;
		}
	}
	return size;
}

static char *put_passing(char *p, const struct ex_names *names, const struct ex_items *items,
			 const struct ex_verdicts *v)
{
	const char *start = p;

	for (size_t i = 0; i < v->count; i++) {
		if (v->code[i] != EX_OK)
			continue;
		if (p != start)
			*p++ = ',';
		p = items != NULL ? copy(p, items->v[i].at, items->v[i].len)
				  : copy(p, names->v[i].raw, names->v[i].raw_len);
	}
	return p;
}

static char *put_failed(char *p, const struct ex_names *names, const struct ex_verdicts *v,
			const struct reasons *r, bool resolvable)
{
	const char *start = p, *text;
	bool wanted[EX_CODE_COUNT];
	size_t len;

	for (int code = 0; code < EX_CODE_COUNT; code++)
		wanted[code] = code != EX_OK && code != EX_REPEATED &&
			       ex_code_resolvable((enum ex_code)code) == resolvable;
	for (size_t i = 0; i < v->count; i++) {
		if (!wanted[v->code[i]])
			continue;
		text = reason_of(r, v, i, &len);
		if (p != start)
			*p++ = ',';
		p = copy(p, names->v[i].raw, names->v[i].raw_len);
		*p++ = ':';
		p = copy(p, text, len);
	}
	return p;
}

void ex_wire_filter(struct buf *out, const struct ex_names *names, const struct ex_items *items,
		    const struct ex_verdicts *v)
{
	struct reasons r;
	char *p;

	if (!reasons_make(&r, v) || !buf_ok(&v->texts) ||
	    !buf_reserve(out, filter_size(names, items, v, &r))) {
		out->failed = true;
		buf_fini(&r.text);
		return;
	}
	p = out->data + out->len;
	if (items != NULL)
		p = COPY_LITERAL(p, "{\"Nodes\":{\"metadata\":{},\"items\":[");
	else
		p = COPY_LITERAL(p, "{\"Nodes\":null,\"NodeNames\":[");
	p = put_passing(p, names, items, v);
	if (items != NULL)
		p = COPY_LITERAL(p, "]},\"NodeNames\":null,\"FailedNodes\":{");
	else
		p = COPY_LITERAL(p, "],\"FailedNodes\":{");
	p = put_failed(p, names, v, &r, true);
	p = COPY_LITERAL(p, "},\"FailedAndUnresolvableNodes\":{");
	p = put_failed(p, names, v, &r, false);
	p = COPY_LITERAL(p, "},\"Error\":\"\"}");
	out->len = (size_t)(p - out->data);
	buf_fini(&r.text);
}

void ex_wire_filter_error(struct buf *out, const char *text)
{
	buf_puts(out, "{\"Nodes\":null,\"NodeNames\":null,\"FailedNodes\":null,"
		      "\"FailedAndUnresolvableNodes\":null,\"Error\":");
	ex_json_put_string(out, text, strlen(text));
	buf_putc(out, '}');
}

/* ---- prioritize ---- */

/* The best key, and the range of the others; false when none is EX_OK. */
static bool key_range(const struct ex_verdicts *v, uint64_t *ret_best, uint64_t *ret_second,
		      uint64_t *ret_least)
{
	uint64_t best = 0, second = 0, least = UINT64_MAX;
	bool any = false;

	for (size_t i = 0; i < v->count; i++) {
		if (v->code[i] != EX_OK)
			continue;
		if (!any || v->key[i] > best) {
			second = best;
			best = v->key[i];
		} else if (v->key[i] > second) {
			second = v->key[i];
		}
		if (v->key[i] < least)
			least = v->key[i];
		any = true;
	}
	*ret_best = best;
	*ret_second = second;
	*ret_least = least;
	return any;
}

void ex_wire_prioritize(struct buf *out, const struct ex_names *names, const struct ex_verdicts *v,
			unsigned rest)
{
	uint64_t best, second, least, score;
	bool first = true, crowned = false;
	size_t size = 2;
	char *p;

	if (!key_range(v, &best, &second, &least)) {
		buf_puts(out, "[]");
		return;
	}
	for (size_t i = 0; i < v->count; i++)
		if (rest > 0 || v->key[i] == best)
			size += names->v[i].raw_len + sizeof("{\"Host\":,\"Score\":10},");
	if (!buf_reserve(out, size))
		return;
	p = out->data + out->len;
	*p++ = '[';
	for (size_t i = 0; i < v->count; i++) {
		if (v->code[i] != EX_OK)
			continue;
		if (v->key[i] == best && !crowned) {
			crowned = true;
			score = 10;
		} else if (rest == 0) {
			continue;
		} else if (v->key[i] >= second || second <= least) {
			score = rest;
		} else {
			score = (uint64_t)((unsigned __int128)(v->key[i] - least) * rest /
					   (second - least));
		}
		/* The scheduler counts 0 for who is not in the list, and reads every entry that is. */
		if (score == 0)
			continue;
		if (!first)
			*p++ = ',';
		first = false;
		p = COPY_LITERAL(p, "{\"Host\":");
		p = copy(p, names->v[i].raw, names->v[i].raw_len);
		p = COPY_LITERAL(p, ",\"Score\":");
		if (score == 10)
			p = COPY_LITERAL(p, "10");
		else
			*p++ = (char)('0' + score);
		*p++ = '}';
	}
	*p++ = ']';
	out->len = (size_t)(p - out->data);
}

void ex_wire_bind(struct buf *out, const char *error)
{
	buf_puts(out, "{\"Error\":");
	ex_json_put_string(out, error, strlen(error));
	buf_putc(out, '}');
}
