"""GitHub's objects in full, from the little that the stand-in remembers.

Checked against GitHub's own description by tests/git/openapi.sh.
"""
API = "https://api.github.com"
WEB = "https://github.com"
TIME = "2026-01-01T00:00:00Z"


def user(login):
    url = API + "/users/" + login
    out = {"login": login, "id": 1, "node_id": "U_1", "gravatar_id": "",
           "avatar_url": "https://avatars.githubusercontent.com/u/1",
           "url": url, "html_url": WEB + "/" + login, "type": "User",
           "site_admin": False,
           "following_url": url + "/following{/other_user}",
           "gists_url": url + "/gists{/gist_id}",
           "starred_url": url + "/starred{/owner}{/repo}",
           "events_url": url + "/events{/privacy}",
           "organizations_url": url + "/orgs"}
    for name in ("followers", "subscriptions", "repos", "received_events"):
        out[name + "_url"] = url + "/" + name
    return out


def repository(full_name):
    owner, name = full_name.split("/")
    url = API + "/repos/" + full_name
    out = {"id": 1, "node_id": "R_1", "name": name, "full_name": full_name,
           "owner": user(owner), "private": False, "fork": False, "url": url,
           "html_url": WEB + "/" + full_name, "description": None,
           "homepage": None, "language": None, "license": None,
           "mirror_url": None, "default_branch": "main", "size": 1,
           "archived": False, "disabled": False, "visibility": "public",
           "created_at": TIME, "updated_at": TIME, "pushed_at": TIME,
           "git_url": "git://github.com/%s.git" % full_name,
           "ssh_url": "git@github.com:%s.git" % full_name,
           "clone_url": "%s/%s.git" % (WEB, full_name),
           "svn_url": WEB + "/" + full_name}
    for key in ("archive", "assignees", "blobs", "branches", "collaborators",
                "comments", "commits", "compare", "contents", "contributors",
                "deployments", "downloads", "events", "forks", "git_commits",
                "git_refs", "git_tags", "hooks", "issue_comment",
                "issue_events", "issues", "keys", "labels", "languages",
                "merges", "milestones", "notifications", "pulls", "releases",
                "stargazers", "statuses", "subscribers", "subscription",
                "tags", "teams", "trees"):
        out[key + "_url"] = url + "/" + key
    for key in ("forks", "forks_count", "open_issues", "open_issues_count",
                "stargazers_count", "watchers", "watchers_count"):
        out[key] = 0
    for key in ("downloads", "issues", "projects", "wiki", "pages"):
        out["has_" + key] = key != "pages"
    return out


def end(owner, ref, repo):
    return {"ref": ref, "label": owner + ":" + ref, "sha": "1" * 40,
            "user": user(owner), "repo": repository(repo)}


def labels(p):
    return [{"id": i + 1, "node_id": "LA_%d" % i, "name": name,
             "url": "%s/repos/%s/labels/%s" % (API, p["repo"], name),
             "description": "", "color": "ededed", "default": False}
            for i, name in enumerate(p["labels"])]


def simple(p):
    """a pull request as lists show it"""
    owner = p["repo"].split("/")[0]
    url = "%s/repos/%s/pulls/%d" % (API, p["repo"], p["number"])
    issue = "%s/repos/%s/issues/%d" % (API, p["repo"], p["number"])
    html = "%s/%s/pull/%d" % (WEB, p["repo"], p["number"])
    closed = TIME if p["state"] == "closed" else None
    links = {"self": url, "html": html, "issue": issue,
             "comments": issue + "/comments", "commits": url + "/commits",
             "review_comments": url + "/comments",
             "review_comment": url + "/comments{/number}",
             "statuses": "%s/repos/%s/statuses/1" % (API, p["repo"])}
    out = {"id": p["number"], "node_id": "PR_1", "number": p["number"],
           "url": url, "html_url": html, "diff_url": html + ".diff",
           "patch_url": html + ".patch", "issue_url": issue,
           "state": p["state"], "title": p["title"], "body": p["body"],
           "draft": p["draft"], "locked": False, "user": user(owner),
           "labels": labels(p), "milestone": None, "assignee": None,
           "auto_merge": None, "author_association": "OWNER",
           "created_at": TIME, "updated_at": TIME, "closed_at": closed,
           "merged_at": TIME if p["merged"] else None,
           "merge_commit_sha": None, "head": end(owner, p["head"], p["repo"]),
           "base": end(owner, p["base"], p["repo"]),
           "_links": {k: {"href": v} for k, v in links.items()}}
    for key in ("comments", "commits", "review_comments", "review_comment",
                "statuses"):
        out[key + "_url"] = links[key]
    return out


def full(p):
    """a pull request as it is shown alone"""
    out = simple(p)
    out.update({"merged": p["merged"], "mergeable": None, "merged_by": None,
                "mergeable_state": "unknown", "maintainer_can_modify": False})
    for key in ("additions", "changed_files", "comments", "commits",
                "deletions", "review_comments"):
        out[key] = 1
    return out


def check_runs(repo, sha, checks):
    """what GitHub's own CI ran on a commit"""
    url = "%s/repos/%s/check-runs/" % (API, repo)
    runs = [{"id": i, "node_id": "CR_%d" % i, "head_sha": sha, "name": name,
             "external_id": "", "url": url + str(i),
             "html_url": "%s/%s/runs/%d" % (WEB, repo, i),
             "details_url": "%s/%s/runs/%d" % (WEB, repo, i),
             "status": "completed" if end else "in_progress",
             "conclusion": end, "started_at": TIME,
             "completed_at": TIME if end else None,
             "output": {"title": None, "summary": None, "text": None,
                        "annotations_count": 0,
                        "annotations_url": url + str(i) + "/annotations"},
             "check_suite": {"id": 1}, "app": None, "pull_requests": []}
            for i, (name, end) in enumerate(checks.get("runs", {}).items(), 1)]
    return {"total_count": len(runs), "check_runs": runs}


def combined_status(repo, sha, checks):
    """what others told GitHub of a commit"""
    url = "%s/repos/%s/commits/%s" % (API, repo, sha)
    all_ = [{"id": i, "node_id": "SC_%d" % i, "state": state, "context": name,
             "description": None, "target_url": None, "avatar_url": None,
             "url": "%s/repos/%s/statuses/%s" % (API, repo, sha),
             "created_at": TIME, "updated_at": TIME}
            for i, (name, state) in
            enumerate(checks.get("statuses", {}).items(), 1)]
    states = {s["state"] for s in all_}
    return {"state": "failure" if states & {"failure", "error"} else
            "success" if states == {"success"} else "pending",
            "sha": sha, "total_count": len(all_), "statuses": all_,
            "repository": repository(repo), "commit_url": url,
            "url": url + "/status"}
