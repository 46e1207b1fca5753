#include "test/lib/pod_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/quantity.h"

static void require(bool ok)
{
	if (!ok)
		abort();
}

/* Cuts "key=value" at its first '='. */
static struct st_kv pair(char *s)
{
	char *equals = strchr(s, '=');

	require(equals != NULL);
	*equals = '\0';
	return (struct st_kv){s, equals + 1};
}

/* Ends the word that starts at *s at one of the separators; *s moves behind it. NULL at the end. */
static char *word(char **s, const char *separators)
{
	char *start = *s, *end;

	start += strspn(start, separators);
	if (*start == '\0')
		return NULL;
	end = start + strcspn(start, separators);
	*s = *end != '\0' ? end + 1 : end;
	*end = '\0';
	return start;
}

static void add_container(struct pod_text *p, char *s, size_t *resources)
{
	struct st_container_spec *c = &p->containers[p->spec.container_count++];
	char *list = strchr(s, '['), *one;

	require(p->spec.container_count <= POD_TEXT_MAX);
	*c = (struct st_container_spec){.resources = &p->resources[*resources]};
	if (list != NULL) {
		*list++ = '\0';
		list[strcspn(list, "]")] = '\0';
	}
	if (s[0] != '\0' && s[1] == ':') {
		c->init = true;
		c->sidecar = s[0] == 's';
		s += 2;
	}
	c->name = s;
	while (list != NULL && (one = word(&list, ",")) != NULL) {
		require(*resources < POD_TEXT_MAX);
		p->resources[(*resources)++] = pair(one);
		c->resource_count++;
	}
}

void pod_text_init(struct pod_text *p, const char *annotations, const char *containers)
{
	size_t len = strlen(annotations), resources = 0;
	char *a = p->text, *c = p->text + len + 1, *one;

	require(len + strlen(containers) + 2 <= sizeof(p->text));
	memcpy(a, annotations, len + 1);
	memcpy(c, containers, strlen(containers) + 1);
	p->spec = (struct st_pod_spec){
		.uid = "u",
		.ns = "ns",
		.name = "p",
		.node = "",
		.nominated_node = "",
		.scheduler = "",
		.annotations = p->annotations,
		.containers = p->containers,
	};
	while ((one = word(&a, "\n")) != NULL) {
		require(p->spec.annotation_count < POD_TEXT_MAX);
		p->annotations[p->spec.annotation_count++] = pair(one);
	}
	while ((one = word(&c, " ")) != NULL)
		add_container(p, one, &resources);
}

void pod_text_annotate(struct pod_text *p, const struct st_annotations *a)
{
	for (size_t i = 0; i < a->count; i++) {
		require(p->spec.annotation_count < POD_TEXT_MAX);
		p->annotations[p->spec.annotation_count++] = a->kv[i];
	}
}

static const char *share_text(int32_t mib, int32_t nano, char buf[24])
{
	if (nano != 0)
		return decimal_format_nano(nano, buf);
	snprintf(buf, 24, "%d", mib);
	return buf;
}

static void put_item(struct buf *b, const struct st_item *it)
{
	char one[24], two[24];

	buf_printf(b, "%s=", it->container);
	if (it->kind == ST_KIND_WHOLE) {
		buf_printf(b, "whole:%d", it->count);
	} else if (it->kind == ST_KIND_MIG) {
		if (it->profile[0] != '\0')
			buf_printf(b, "mig:%dx%s", it->count, it->profile);
		else
			buf_printf(b, "mig:%dx%s%s", it->count,
				   share_text(it->request_mib, it->request_nano, one),
				   it->request_nano == 0 ? "Mi" : "");
		buf_puts(b, it->apart && it->count > 1 ? ":apart" : "");
	} else {
		buf_printf(b, "share:%s%s:%dx%s", st_mode_name(it->mode),
			   it->mode_preferred ? "?" : "", it->count,
			   share_text(it->request_mib, it->request_nano, one));
		if (it->limit_mib != 0 || it->limit_nano != 0)
			buf_printf(b, "/%s", share_text(it->limit_mib, it->limit_nano, two));
		buf_puts(b, it->request_nano == 0 ? "Mi" : "");
		if (it->compute_nano != 0)
			buf_printf(b, ":c%s", decimal_format_nano(it->compute_nano, one));
	}
}

/* Copies what b holds to buf and empties b. */
static const char *finish(struct buf *b, char *buf, size_t cap)
{
	const char *s = buf_str(b);

	require(s != NULL && b->len < cap);
	memcpy(buf, s, b->len + 1);
	buf_fini(b);
	return buf;
}

const char *request_text(const struct st_request *r, char *buf, size_t cap)
{
	static const char *const workloads[] = {"", " workload=memory-bound",
						" workload=compute-bound"};
	struct buf b = BUF_INIT;

	for (int i = 0; i < r->item_count; i++) {
		buf_puts(&b, i > 0 ? " " : "");
		put_item(&b, &r->items[i]);
	}
	if (r->product[0] != '\0')
		buf_printf(&b, " product=%s", r->product);
	buf_puts(&b, workloads[r->workload]);
	return finish(&b, buf, cap);
}

const char *decision_text(const struct st_decision *d, char *buf, size_t cap)
{
	static const char *const kinds[] = {"share", "whole", "mig"};
	struct buf b = BUF_INIT;
	char nano[24];

	for (int i = 0; i < d->grant_count; i++) {
		const struct st_grant *g = &d->grants[i];

		buf_printf(&b, "%s%s=%s:", i > 0 ? " " : "", g->container, kinds[g->kind]);
		if (g->kind == ST_KIND_SHARE)
			buf_printf(&b, "%s:", st_mode_name(g->mode));
		for (int k = 0; k < g->count; k++) {
			buf_printf(&b, "%s%d", k > 0 ? "," : "", g->gpu[k]);
			if (g->kind == ST_KIND_MIG)
				buf_printf(&b, "@%d", g->start[k]);
		}
		if (g->kind == ST_KIND_MIG)
			buf_printf(&b, ":%s", g->profile);
		if (g->request_mib != 0 || g->limit_mib != 0)
			buf_printf(&b, ":%d/%dMi", g->request_mib, g->limit_mib);
		if (g->compute_nano != 0)
			buf_printf(&b, ":c%s", decimal_format_nano(g->compute_nano, nano));
	}
	return finish(&b, buf, cap);
}
