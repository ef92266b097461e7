// Snapshots from C++: handles that free themselves, errors as exceptions.
//
//     c++ -std=c++17 snapshots.cc $(pkg-config --cflags --libs cambium) && ./a.out

#include <cambium.h>

#include <iostream>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace {

struct Free {
  void operator()(cambium_store* store) const { cambium_store_free(store); }
  void operator()(cambium_snapshot* then) const { cambium_snapshot_free(then); }
  void operator()(void* memory) const { cambium_free(memory); }
};
using Store = std::unique_ptr<cambium_store, Free>;
using Snapshot = std::unique_ptr<cambium_snapshot, Free>;

void expect(cambium_code code) {
  if (code != CAMBIUM_OK) throw std::runtime_error(cambium_error_message());
}

Store open(const char* folder) {
  cambium_store* store = nullptr;
  expect(cambium_open_or_create(folder, "wisckey", nullptr, &store));
  return Store(store);
}

void put(const Store& store, std::string_view key, std::string_view value) {
  expect(cambium_put(store.get(), key.data(), key.size(), value.data(),
                     value.size(), CAMBIUM_WRITTEN));
}

Snapshot now(const Store& store) {
  cambium_snapshot* snapshot = nullptr;
  expect(cambium_snapshot_new(store.get(), &snapshot));
  return Snapshot(snapshot);
}

std::optional<std::string> get(const Snapshot& then, std::string_view key) {
  void* value = nullptr;
  size_t length = 0;
  const cambium_code code =
      cambium_snapshot_get(then.get(), key.data(), key.size(), &value, &length);
  if (code == CAMBIUM_NOT_FOUND) return std::nullopt;
  expect(code);
  const std::unique_ptr<void, Free> owned(value);
  return std::string(static_cast<const char*>(value), length);
}

}  // namespace

int main() {
  const Store store = open("snapshots");
  put(store, "oak", "young");
  const Snapshot then = now(store);
  put(store, "oak", "old");
  std::cout << "then " << get(then, "oak").value() << ", now "
            << get(now(store), "oak").value() << ", elm "
            << get(then, "elm").value_or("nowhere") << "\n";
  expect(cambium_close(store.get()));
  try {
    put(store, "oak", "closed");
  } catch (const std::runtime_error& error) {
    std::cout << error.what() << "\n";
  }
}
