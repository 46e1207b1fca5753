/* A CUDA program for the acceptance test, over the driver's libcuda.so.1 loaded at run time. Commands on
 * standard input, one answer a line:
 *
 *   info        sms=66 total_mib=4096 free_mib=4000 mps=1
 *   alloc N     ok, or "error <code>": N MiB in one piece
 *   fill        got_mib=3904 error=2: pieces of 64 MiB until one is refused
 *   touch       ok, or "error <code>": writes all memory that it has
 *   free        ok
 *   quit
 *
 * The first line is "ready", or "error <what> <code>". */
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PIECES_MAX 8192
#define PIECE_MIB 64
#define ATTRIBUTE_SMS 16
#define ATTRIBUTE_MPS 133 /* CU_DEVICE_ATTRIBUTE_MPS_ENABLED */
#define MIB ((size_t)1 << 20)

struct cuda {
	int (*init)(unsigned flags);
	int (*device)(int *ret, int ordinal);
	int (*attribute)(int *ret, int which, int device);
	int (*context)(void **ret, unsigned flags, int device);
	int (*info)(size_t *ret_free, size_t *ret_total);
	int (*alloc)(unsigned long long *ret, size_t size);
	int (*release)(unsigned long long address);
	int (*fill)(unsigned long long address, unsigned char v, size_t size);
	int (*sync)(void);
};

struct piece {
	unsigned long long address;
	size_t size;
};

static struct piece pieces[PIECES_MAX];
static size_t piece_count;

static int load(struct cuda *c)
{
	static const struct {
		const char *name;
		size_t offset;
	} symbols[] = {
		{"cuInit", offsetof(struct cuda, init)},
		{"cuDeviceGet", offsetof(struct cuda, device)},
		{"cuDeviceGetAttribute", offsetof(struct cuda, attribute)},
		{"cuCtxCreate_v2", offsetof(struct cuda, context)},
		{"cuMemGetInfo_v2", offsetof(struct cuda, info)},
		{"cuMemAlloc_v2", offsetof(struct cuda, alloc)},
		{"cuMemFree_v2", offsetof(struct cuda, release)},
		{"cuMemsetD8_v2", offsetof(struct cuda, fill)},
		{"cuCtxSynchronize", offsetof(struct cuda, sync)},
	};
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

	for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
		void *address = library != NULL ? dlsym(library, symbols[i].name) : NULL;

		if (address == NULL)
			return -1;
		memcpy((char *)c + symbols[i].offset, &address, sizeof(address));
	}
	return 0;
}

static int alloc(const struct cuda *c, size_t mib)
{
	struct piece *p = &pieces[piece_count];
	int code;

	if (piece_count == PIECES_MAX)
		return -1;
	p->size = mib * MIB;
	code = c->alloc(&p->address, p->size);
	if (code == 0)
		piece_count++;
	return code;
}

static int touch(const struct cuda *c)
{
	for (size_t i = 0; i < piece_count; i++) {
		int code = c->fill(pieces[i].address, 0x5a, pieces[i].size);

		if (code != 0)
			return code;
	}
	return c->sync();
}

static int release(const struct cuda *c)
{
	int code = 0;

	while (piece_count > 0 && code == 0)
		code = c->release(pieces[--piece_count].address);
	return code;
}

static void answer(int code)
{
	if (code == 0)
		printf("ok\n");
	else
		printf("error %d\n", code);
}

static void info(const struct cuda *c, int device)
{
	size_t free_bytes = 0, total = 0;
	int sms = 0, mps = -1, code = c->attribute(&sms, ATTRIBUTE_SMS, device);

	if (code == 0)
		code = c->info(&free_bytes, &total);
	(void)c->attribute(&mps, ATTRIBUTE_MPS, device);
	if (code != 0)
		answer(code);
	else
		printf("sms=%d total_mib=%zu free_mib=%zu mps=%d\n", sms, total / MIB,
		       free_bytes / MIB, mps);
}

static void fill(const struct cuda *c)
{
	size_t got = 0;
	int code;

	while ((code = alloc(c, PIECE_MIB)) == 0)
		got += PIECE_MIB;
	printf("got_mib=%zu error=%d\n", got, code);
}

int main(void)
{
	struct cuda c;
	void *context;
	char line[64];
	int device = 0, code;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (load(&c) != 0) {
		printf("error libcuda.so.1 0\n");
		return 1;
	}
	code = c.init(0);
	if (code == 0)
		code = c.device(&device, 0);
	if (code == 0)
		code = c.context(&context, 0, device);
	if (code != 0) {
		printf("error start %d\n", code);
		return 1;
	}
	printf("ready\n");
	while (fgets(line, sizeof(line), stdin) != NULL) {
		line[strcspn(line, "\n")] = '\0';
		if (strcmp(line, "info") == 0)
			info(&c, device);
		else if (strncmp(line, "alloc ", 6) == 0)
			answer(alloc(&c, strtoul(line + 6, NULL, 10)));
		else if (strcmp(line, "fill") == 0)
			fill(&c);
		else if (strcmp(line, "touch") == 0)
			answer(touch(&c));
		else if (strcmp(line, "free") == 0)
			answer(release(&c));
		else
			break;
	}
	return 0;
}
