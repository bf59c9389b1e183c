# courier: `make` builds, `make demo` shows it, `make test` proves it.
# Everything else is listed by `make help`.

CC ?= gcc
BUILD ?= build
PREFIX ?= /usr/local
VERSION := 0.1.0

PKGS := fuse3 libcurl jansson sqlite3 libgit2 libsodium zlib
HOST_PKGS := jansson zlib libcurl libsodium

WARN := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Werror
OPT ?= -O2 -g
SAN ?=
CPPFLAGS += -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64 -DFUSE_USE_VERSION=314 \
	-DCOURIER_VERSION='"$(VERSION)"' -Ibackend -I. \
	$(filter -I%,$(shell pkg-config --cflags $(PKGS) 2>/dev/null))
CFLAGS += -std=gnu17 $(OPT) $(WARN) $(SAN) -pthread
LDFLAGS += $(SAN) -pthread
LIBS := $(shell pkg-config --libs $(PKGS) 2>/dev/null) -lm
HOST_LIBS := $(shell pkg-config --libs $(HOST_PKGS) 2>/dev/null) -lm

BASE := $(wildcard backend/base/*.c)
BACKEND := $(BASE) $(wildcard $(addprefix backend/,$(addsuffix /*.c,store e2b agents git vault engine)))
HOST := $(BASE) $(wildcard backend/local/*.c)
FS := $(wildcard fs/*.c)
UNIT := $(wildcard tests/unit/*.c)

obj = $(patsubst %.c,$(BUILD)/obj/%.o,$(1))
UNIT_BIN := $(patsubst tests/unit/%.c,$(BUILD)/unit/%,$(UNIT))

ifndef V
.SILENT:
endif

all: $(BUILD)/courierfs $(BUILD)/courier-sandboxd

$(BUILD)/courierfs: $(call obj,$(FS) $(BACKEND))
	$(CC) $(LDFLAGS) -o $@ $^ $(LIBS)

$(BUILD)/courier-sandboxd: $(call obj,$(HOST))
	$(CC) $(LDFLAGS) -o $@ $^ $(HOST_LIBS)

# a unit test is one file: it links the backend, and includes what it tests
# from fs/ or backend/local/ by linking those objects too (but for main)
UNIT_OBJ := $(filter-out %/main.o,$(call obj,$(FS) $(BACKEND) $(filter-out $(BASE),$(HOST))))
$(BUILD)/libcourier-test.a: $(UNIT_OBJ)
	rm -f $@
	ar qcs $@ $^

$(BUILD)/unit/%: tests/unit/%.c $(BUILD)/libcourier-test.a $(BUILD)/flags
	@mkdir -p $(@D) $(BUILD)/dep/tests/unit
	$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -MF $(BUILD)/dep/tests/unit/$*.d $(LDFLAGS) -o $@ $< \
		$(BUILD)/libcourier-test.a -lcmocka $(LIBS) $(HOST_LIBS)

unit: $(UNIT_BIN)

$(BUILD)/obj/%.o: %.c $(BUILD)/flags
	@mkdir -p $(@D) $(dir $(BUILD)/dep/$*)
	$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -MF $(BUILD)/dep/$*.d -c -o $@ $<

# the scripts for the sandbox are put into this object as they are
$(BUILD)/obj/backend/git/script.o: $(wildcard backend/git/*.bash)

# the flags are a file, so that changing them, or adding or removing a
# source, builds what it must
$(BUILD)/flags: FORCE
	@mkdir -p $(BUILD)
	@printf '%s\n' '$(subst ','\'',$(CC) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS))' | cmp -s - $@ || \
		printf '%s\n' '$(subst ','\'',$(CC) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS))' >$@
FORCE:

-include $(shell find $(BUILD)/dep -name '*.d' 2>/dev/null)

demo:
	@scripts/setup build run
	@$(MAKE) -s all
	@scripts/demo

# everything that the tests need, then the tests, as who calls it; test-user: by
# root, as a plain user
test:
	@scripts/setup build run test
	@$(MAKE) -s -j2 all unit
	@tests/run -j 3
test-user:
	@scripts/setup build run test
	@$(MAKE) -s -j2 all unit
	@tests/run --as user -j 3

# the official SDK and CLI against the local host; the four real agent CLIs,
# outside the mount and through it (from npm, with a model server of ours)
test-peers: all
	@BIN=$(BUILD) tests/peers/run.sh
test-agents: all
	@scripts/setup build run test
	@BIN=$(BUILD) tests/agents/real.sh
	@BIN=$(BUILD) tests/agents/mount.sh

# the crash suite at length, and drafts by the thousand: about an hour
soak:
	@scripts/setup build run test
	@$(MAKE) -s -j2 all
	@BIN=$(BUILD) tests/soak/soak.sh

check:
	@scripts/setup build test check
	@scripts/check

# the same sources under the sanitizers, each in a directory of its own
asan:
	@$(MAKE) BUILD=build-asan CC=clang OPT='-O1 -g' \
		SAN='-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer' all unit
tsan:
	@$(MAKE) BUILD=build-tsan CC=clang OPT='-O1 -g' SAN='-fsanitize=thread' all unit

# share/courier would be the data directory where PREFIX is ~/.local; systemd
# looks into share/systemd/user under every prefix, not into lib
SHARE := $(DESTDIR)$(PREFIX)/share
install: all
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/libexec/courier \
		$(SHARE)/man/man1 $(SHARE)/man/man5 $(SHARE)/man/man8 \
		$(SHARE)/bash-completion/completions $(SHARE)/zsh/site-functions \
		$(SHARE)/courierfs $(SHARE)/doc/courierfs/docs $(SHARE)/systemd/user
	install -m755 $(BUILD)/courierfs $(DESTDIR)$(PREFIX)/bin/
	install -m755 $(BUILD)/courier-sandboxd $(DESTDIR)$(PREFIX)/libexec/courier/
	install -m644 docs/man/courierfs.1 $(SHARE)/man/man1/
	install -m644 docs/man/courier.5 $(SHARE)/man/man5/
	install -m644 docs/man/courier-sandboxd.8 $(SHARE)/man/man8/
	install -m644 scripts/completion/courierfs.bash $(SHARE)/bash-completion/completions/courierfs
	install -m644 scripts/completion/_courierfs $(SHARE)/zsh/site-functions/
	install -m644 scripts/editor/courier.vim scripts/editor/courier-ctl.bash $(SHARE)/courierfs/
	install -m644 README.md LICENSE $(SHARE)/doc/courierfs/
	install -m644 docs/*.md $(SHARE)/doc/courierfs/docs/
	sed 's|@BIN@|$(PREFIX)/bin|' scripts/courierfs.service >$(SHARE)/systemd/user/courierfs.service

# the record stays: it is in the data directory
uninstall:
	rm -f $(DESTDIR)$(PREFIX)/bin/courierfs \
		$(SHARE)/man/man1/courierfs.1 $(SHARE)/man/man5/courier.5 \
		$(SHARE)/man/man8/courier-sandboxd.8 \
		$(SHARE)/bash-completion/completions/courierfs \
		$(SHARE)/zsh/site-functions/_courierfs \
		$(SHARE)/systemd/user/courierfs.service
	rm -rf $(DESTDIR)$(PREFIX)/libexec/courier $(SHARE)/courierfs $(SHARE)/doc/courierfs

# what it costs; BENCH_FULL=1 for the long one
bench: all
	@BIN=$(BUILD) tests/bench/bench.sh
	@scripts/setup bench || :
	@BIN=$(BUILD) tests/bench/files.sh

# the table of the tree and of the settings in courier(5)
man: $(BUILD)/courierfs
	scripts/man-tree $(BUILD)/courierfs

clean:
	rm -rf $(BUILD) build-asan build-tsan build-clang

help:
	@echo 'make           build/courierfs and build/courier-sandboxd'
	@echo 'make demo      install what is missing, build, show a sandbox at work'
	@echo 'make test      install what is missing, build, run the tests'
	@echo 'make test-user  by root: the same in the hands of a plain user'
	@echo 'make test-peers test-agents   the official SDK and CLI; the real agent CLIs'
	@echo 'make soak      1,000 crashes, 10,000 drafts: about an hour'
	@echo 'make check     style, linters, both compilers'
	@echo 'make asan tsan builds under the sanitizers (BIN=build-asan tests/run)'
	@echo 'make bench     figures for docs/performance.md (BENCH_FULL=1: the long ones)'
	@echo 'make man       renews the tables in courier(5)'
	@echo 'make install   PREFIX=/usr/local DESTDIR='
	@echo 'make uninstall takes away what that put there, and no data'

.PHONY: all unit demo test test-user test-peers test-agents soak check asan tsan bench man install uninstall clean help FORCE
.DELETE_ON_ERROR:
