#include "kube/client_path.h"

#include <ctype.h>
#include <string.h>

static void put_escaped(struct buf *b, const char *s)
{
	for (; *s != '\0'; s++) {
		unsigned char ch = (unsigned char)*s;

		if ((ch < 0x80 && isalnum(ch)) || strchr("-._~", ch) != NULL)
			buf_putc(b, *s);
		else
			buf_printf(b, "%%%02X", ch);
	}
}

bool ku_path_legal(const char *s)
{
	return *s != '\0' && strcmp(s, ".") != 0 && strcmp(s, "..") != 0;
}

void ku_path_put(struct buf *b, const char *part)
{
	buf_putc(b, '/');
	put_escaped(b, part);
}

void ku_path_query(struct buf *b, const char *name, const char *value)
{
	bool more = b->len > 0 && memchr(b->data, '?', b->len) != NULL;

	buf_putc(b, more ? '&' : '?');
	put_escaped(b, name);
	buf_putc(b, '=');
	put_escaped(b, value);
}

void ku_path_pod(struct buf *b, const char *ns, const char *name, const char *sub)
{
	buf_puts(b, "/api/v1/namespaces");
	ku_path_put(b, ns);
	buf_puts(b, "/pods");
	ku_path_put(b, name);
	if (sub != NULL)
		ku_path_put(b, sub);
}

void ku_path_node(struct buf *b, const char *name, const char *sub)
{
	buf_puts(b, "/api/v1/nodes");
	ku_path_put(b, name);
	if (sub != NULL)
		ku_path_put(b, sub);
}
