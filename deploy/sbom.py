#!/usr/bin/env python3
"""Lists what is inside the program, as a CycloneDX 1.5 document, from Cargo.lock by way of `cargo metadata`.

Usage: sbom.py > hapax.cdx.json     (in the root of the repository)
"""
import json
import subprocess
import sys


def metadata():
    version = subprocess.run(["rustc", "-vV"], check=True, capture_output=True, text=True).stdout
    host = next(line.split(": ")[1] for line in version.splitlines() if line.startswith("host: "))
    command = ["cargo", "metadata", "--format-version", "1", "--locked", "--offline", "--filter-platform", host]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def is_shipped(dependency):
    """True for what ends in the program: neither what only tests need, nor what only builds it."""
    return any(kind["kind"] is None for kind in dependency["dep_kinds"])


def licences(package):
    text = package.get("license")
    return [{"expression": text.replace("/", " OR ")}] if text else []


def component(package):
    purl = f"pkg:cargo/{package['name']}@{package['version']}"
    return {
        "type": "library",
        "bom-ref": purl,
        "name": package["name"],
        "version": package["version"],
        "purl": purl,
        "licenses": licences(package),
    }


def main():
    data = metadata()
    packages = {package["id"]: package for package in data["packages"]}
    nodes = {node["id"]: node for node in data["resolve"]["nodes"]}
    root = next(package["id"] for package in data["packages"] if package["name"] == "hapax-server")
    reached, waiting = set(), [root]
    while waiting:
        one = waiting.pop()
        if one not in reached:
            reached.add(one)
            waiting.extend(dependency["pkg"] for dependency in nodes[one]["deps"] if is_shipped(dependency))
    ref = {one: component(packages[one])["bom-ref"] for one in reached}
    shipped = sorted(reached - {root}, key=lambda one: ref[one])
    edges = [
        {
            "ref": ref[one],
            "dependsOn": sorted(ref[dependency["pkg"]] for dependency in nodes[one]["deps"] if is_shipped(dependency)),
        }
        for one in sorted(reached, key=lambda one: ref[one])
    ]
    program = component(packages[root]) | {"type": "application", "name": "hapax"}
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": program},
        "components": [component(packages[one]) for one in shipped],
        "dependencies": edges,
    }
    json.dump(document, sys.stdout, indent=2, sort_keys=True)
    print()


if __name__ == "__main__":
    main()
