# courier: `make` builds, `make demo` shows it, `make test` proves it.
# Everything else is listed by `make help`.

CC ?= gcc
BUILD ?= build
PREFIX ?= /usr/local
VERSION := 0.1.0

PKGS := fuse3 libcurl jansson sqlite3 libgit2 libsodium zlib
HOST_PKGS := libmicrohttpd jansson zlib libcurl libsodium

WARN := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Werror
OPT ?= -O2 -g
SAN ?=
CPPFLAGS += -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64 -DFUSE_USE_VERSION=314 \
	-DCOURIER_VERSION='"$(VERSION)"' -Ibackend -I. \
	$(filter -I%,$(shell pkg-config --cflags $(PKGS) libmicrohttpd 2>/dev/null))
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

# the flags are a file, so that changing them, or adding or removing a
# source, builds what it must
$(BUILD)/flags: FORCE
	@mkdir -p $(BUILD)
	@printf '%s\n' '$(subst ','\'',$(CC) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS))' | cmp -s - $@ || \
		printf '%s\n' '$(subst ','\'',$(CC) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS))' >$@
FORCE:

-include $(shell find $(BUILD)/dep -name '*.d' 2>/dev/null)

clean:
	rm -rf $(BUILD)

.PHONY: all unit clean FORCE
.DELETE_ON_ERROR:
