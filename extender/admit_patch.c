/* What /mutate changes, as a JSON patch (RFC 6902). */
#include <stdlib.h>
#include <string.h>

#include "extender/admit.h"
#include "extender/json.h"
#include "extender/mirror.h"

struct patch {
	struct ex_json j;
	bool any;
};

/* "/a/b" with one more part, escaped as RFC 6901 has it. */
static void put_part(struct buf *b, const char *part)
{
	buf_putc(b, '/');
	for (const char *p = part; *p != '\0'; p++) {
		if (*p == '~')
			buf_puts(b, "~0");
		else if (*p == '/')
			buf_puts(b, "~1");
		else
			buf_putc(b, *p);
	}
}

/* What could not be put together must not become a patch of something else. */
static const char *text_of(struct patch *p, struct buf *b)
{
	const char *text = buf_str(b);

	if (text == NULL)
		p->j.b->failed = true;
	return text != NULL ? text : "";
}

static void begin_op(struct patch *p, const char *op, struct buf *path)
{
	ex_json_begin(&p->j, '{');
	ex_json_key_string(&p->j, "op", op);
	ex_json_key_string(&p->j, "path", text_of(p, path));
	p->any = true;
}

/* Allocation keys, and what the bind that wrote them left beside them. */
static int drop_forged(struct patch *p, const struct st_pod_spec *spec,
		       const struct st_contract_options *opt, struct err *err)
{
	bool *left = calloc(spec->annotation_count + 1, sizeof(*left));
	struct err why = ERR_INIT;

	if (left == NULL)
		return err_set(err, ERR_NOMEM, "out of memory");
	(void)st_contract_leftovers(spec, opt, left, &why); /* validate says what is wrong */
	for (size_t i = 0; i < spec->annotation_count; i++) {
		struct buf path = BUF_INIT;

		if (!left[i] && !st_contract_is_allocation_key(spec->annotations[i].key, opt))
			continue;
		buf_puts(&path, "/metadata/annotations");
		put_part(&path, spec->annotations[i].key);
		begin_op(p, "remove", &path);
		ex_json_end(&p->j, '}');
		buf_fini(&path);
	}
	free(left);
	return 0;
}

/* ---- resources ---- */

static int64_t item_mib(const struct st_item *it, int32_t smallest)
{
	int64_t each = 1;

	if (it->kind == ST_KIND_SHARE && it->request_mib > 0)
		each = it->request_mib;
	else if (it->kind == ST_KIND_SHARE && smallest > 0)
		each = st_item_request_mib(it, smallest);
	else if (it->kind == ST_KIND_WHOLE && smallest > 0)
		each = smallest;
	return each * it->count;
}

/* Adds the quantity under resources/<field>, making what is not there. */
static void add_resource(struct patch *p, const char *base, const cJSON *resources,
			 const char *field, int64_t mib)
{
	const cJSON *list = ku_json_get(resources, field);
	struct buf path = BUF_INIT, amount = BUF_INIT;
	const char *text;

	buf_puts(&path, base);
	put_part(&path, "resources");
	put_part(&path, field);
	buf_put_i64(&amount, mib);
	text = text_of(p, &amount);
	if (cJSON_IsObject(list)) {
		put_part(&path, EX_MEMORY_RESOURCE);
		begin_op(p, "add", &path);
		ex_json_key_string(&p->j, "value", text);
	} else {
		begin_op(p, "add", &path);
		ex_json_key(&p->j, "value");
		ex_json_begin(&p->j, '{');
		ex_json_key_string(&p->j, EX_MEMORY_RESOURCE, text);
		ex_json_end(&p->j, '}');
	}
	ex_json_end(&p->j, '}');
	buf_fini(&amount);
	buf_fini(&path);
}

static bool asks_already(const cJSON *resources)
{
	return ku_json_get(ku_json_get(resources, "limits"), EX_MEMORY_RESOURCE) != NULL ||
	       ku_json_get(ku_json_get(resources, "requests"), EX_MEMORY_RESOURCE) != NULL;
}

static void add_container(struct patch *p, const char *list, int index, const cJSON *container,
			  int64_t mib)
{
	const cJSON *resources = ku_json_get(container, "resources");
	struct buf base = BUF_INIT;
	const char *text;

	if (asks_already(resources))
		return;
	buf_printf(&base, "/spec/%s/%d", list, index);
	text = text_of(p, &base);
	if (!cJSON_IsObject(resources)) {
		struct buf path = BUF_INIT;

		buf_printf(&path, "%s/resources", text);
		begin_op(p, "add", &path);
		ex_json_key(&p->j, "value");
		ex_json_begin(&p->j, '{');
		ex_json_end(&p->j, '}');
		ex_json_end(&p->j, '}');
		buf_fini(&path);
	}
	/* Extended resources must be the same in both. */
	add_resource(p, text, resources, "limits", mib);
	add_resource(p, text, resources, "requests", mib);
	buf_fini(&base);
}

static void add_item(struct patch *p, const cJSON *pod, const struct st_item *it, int32_t smallest)
{
	static const char *const lists[] = {"initContainers", "containers"};
	const cJSON *spec = ku_json_get(pod, "spec"), *c;

	for (size_t i = 0; i < 2; i++) {
		const cJSON *list = ku_json_get(spec, lists[i]);
		int index = 0;

		cJSON_ArrayForEach(c, list)
		{
			const cJSON *name = ku_json_get(c, "name");

			if (cJSON_IsString(name) && strcmp(name->valuestring, it->container) == 0)
				add_container(p, lists[i], index, c, item_mib(it, smallest));
			index++;
		}
	}
}

/* Somebody's own choice is left, of a scheduler and of the label. */
static bool wants_scheduler(const struct ex_admit *how, const cJSON *pod,
			    const struct st_pod_spec *spec)
{
	const cJSON *label = ku_json_get(ku_json_get(ku_json_get(pod, "metadata"), "labels"),
					 EX_SCHEDULER_LABEL);
	const char *said = cJSON_IsString(label) ? label->valuestring : "";

	if (how->scheduler[0] == '\0' ||
	    (spec->scheduler[0] != '\0' && strcmp(spec->scheduler, "default-scheduler") != 0))
		return false;
	return strcmp(said, "enabled") == 0 || (how->unlabelled && strcmp(said, "disabled") != 0);
}

static void set_scheduler(struct patch *p, const char *name)
{
	struct buf path = BUF_INIT;

	buf_puts(&path, "/spec/schedulerName");
	begin_op(p, "add", &path);
	ex_json_key_string(&p->j, "value", name);
	ex_json_end(&p->j, '}');
	buf_fini(&path);
}

int ex_admit_patch(const struct ex_admit *how, const cJSON *pod, const struct st_pod_spec *spec,
		   const struct st_request *req, struct buf *out, struct err *err)
{
	struct patch p = {.j = {.b = out}};
	size_t start = out->len;
	int32_t smallest;
	int rc;

	ex_json_begin(&p.j, '[');
	rc = drop_forged(&p, spec, ex_service_contract(how->service), err);
	if (rc < 0)
		return rc;
	if (req != NULL && req->item_count > 0) {
		smallest = ex_mirror_smallest_gpu(how->service);
		for (unsigned i = 0; i < req->item_count; i++)
			add_item(&p, pod, &req->items[i], smallest);
		if (wants_scheduler(how, pod, spec))
			set_scheduler(&p, how->scheduler);
	}
	ex_json_end(&p.j, ']');
	if (!buf_ok(out))
		return err_set(err, ERR_NOMEM, "out of memory");
	if (!p.any)
		out->len = start;
	return 0;
}
